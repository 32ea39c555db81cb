# expect: reject
# caught by: runtime_error.overlap
# workload: st_silu
# api: nki
# chip: trn2
"""128 descriptors add to one row: on a chip some read what others have written."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=tile)
    zero = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=zero, value=0.0)
    nisa.dma_copy(dst=out[0:1, :], src=zero[0:1, :])
    first = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=first, src=x.ap([[0, 128], [1, 512]]))
    nisa.activation(dst=first, op=nl.silu, data=first)
    place = nl.ndarray((128, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.iota(dst=place, pattern=[[0, 1]], offset=0, channel_multiplier=0)
    rows = out.ap([[512, 128], [1, 512]], vector_offset=place, indirect_dim=0)
    nisa.dma_compute(dst=rows, srcs=[rows, first], reduce_op=nl.add)
    return out
