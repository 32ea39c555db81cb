# expect: truthful
# workload: st_silu_current
# api: nki
# chip: trn2
# at_least: 3.0
"""Load one row into all partitions before gathers with equal axes: each gather has its own price."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    place = nl.ndarray((128, 1), dtype=nl.int32, buffer=nl.sbuf)
    wide = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=wide, src=x.ap([[0, 128], [1, 512]]))
    for row in range(2):
        nisa.iota(dst=place, pattern=[[0, 1]], offset=128 * row, channel_multiplier=1)
        for n in range(10):
            tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x.ap([[512, 128], [1, 512]], vector_offset=place, indirect_dim=0))
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=done, op=nl.silu, data=tile)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
