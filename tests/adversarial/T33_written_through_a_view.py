# expect: truthful
# workload: st_silu_current
# api: nki
# chip: trn2
# at_least: 2.6
"""Write a tile through a view: the write waits for the reader of the tile."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    source = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=source, src=x[0:128, :])
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    last = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=0.0)
    for turn in range(20):
        nisa.tensor_copy(dst=tile.view(nl.uint16), src=source.view(nl.uint16), engine=nisa.vector_engine)
        nisa.activation(dst=last, op=nl.exp, data=tile)
    for row in range(2):
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=done, src=x[nl.ds(128 * row, 128), :])
        nisa.activation(dst=done, op=nl.silu, data=done)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
