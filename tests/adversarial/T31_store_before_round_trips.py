# expect: truthful
# workload: st_silu_current
# api: nki
# chip: trn2
# at_least: 3.6
"""Store once before stores of equal shape that are loaded back: each of these loads waits for HBM."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    scratch = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.hbm)
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[0:128, :])
    nisa.activation(dst=tile, op=nl.silu, data=tile)
    nisa.dma_copy(dst=out[128:256, :], src=tile)
    held = tile
    for n in range(8):
        nisa.dma_copy(dst=scratch[128:256, :], src=held)
        held = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=held, src=scratch[128:256, :])
    nisa.dma_copy(dst=out[0:128, :], src=held)
    done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=done, src=x[128:256, :])
    nisa.activation(dst=done, op=nl.silu, data=done)
    nisa.dma_copy(dst=out[128:256, :], src=done)
    return out
