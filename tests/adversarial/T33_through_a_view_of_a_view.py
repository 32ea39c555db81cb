# expect: truthful
# workload: st_silu_current
# api: nki
# chip: trn2
# at_least: 2.7
"""Read a tile through a view of a view: the next load into the tile waits for the reader."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    last = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.sbuf)
    for turn in range(20):
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * (turn % 2), 128), :])
        halves = tile.view(nl.bfloat16)
        nisa.activation(dst=last, op=nl.copy, data=halves.view(nl.uint8))
    for row in range(2):
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=done, src=x[nl.ds(128 * row, 128), :])
        nisa.activation(dst=done, op=nl.silu, data=done)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
