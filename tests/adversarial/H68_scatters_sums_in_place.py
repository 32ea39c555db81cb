# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Transfers add to rows in place, each row once, in an order that a table gives."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    zero = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    place = nl.ndarray((128, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(dst=zero, value=0.0)
    for row in range(2):
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=zero)
        nisa.iota(dst=place, pattern=[[0, 1]], offset=128 * row + 127, channel_multiplier=-1)
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x.ap([[512, 128], [1, 512]], vector_offset=place, indirect_dim=0))
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        rows = out.ap([[512, 128], [1, 512]], vector_offset=place, indirect_dim=0)
        nisa.dma_compute(dst=rows, srcs=[rows, tile], reduce_op=nl.add)
    return out
