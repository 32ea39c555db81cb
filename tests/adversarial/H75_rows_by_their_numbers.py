# expect: pass
# workload: st_silu_current
# api: nki
# chip: trn2
"""Gathers rows of the argument by numbers that are computed as integers."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        first = nl.ndarray((128, 1), dtype=nl.int32, buffer=nl.sbuf)
        offset = nl.ndarray((128, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.iota(dst=first, pattern=[[0, 1]], offset=0, channel_multiplier=1)
        nisa.memset(dst=offset, value=128 * row)
        index = nl.add(first, offset)
        nisa.dma_copy(dst=tile, src=x.ap(pattern=[[512, 128], [1, 512]], offset=0, vector_offset=index, indirect_dim=0))
        nisa.activation(dst=done, op=nl.silu, data=tile)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
