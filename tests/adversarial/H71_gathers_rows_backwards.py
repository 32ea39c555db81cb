# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Gather rows in reversed order, and scatter them back."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    place = nl.ndarray((128, 1), dtype=nl.int32, buffer=nl.sbuf)
    for row in range(2):
        nisa.iota(dst=place, pattern=[[0, 1]], offset=128 * row + 127, channel_multiplier=-1)
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x.vector_select(0, place))
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        nisa.dma_copy(dst=out.vector_select(0, place), src=tile)
    return out
