# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""A long loop computes places by functions of numpy."""

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for part in nl.affine_range(64):
        c = 8 * part
        n = int(np.minimum(8, np.maximum(8, 1)))
        for row in range(2):
            tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, c : c + 8])
            nisa.activation(dst=tile, op=nl.silu, data=tile)
            nisa.dma_copy(dst=out[128 * row : 128 * row + 128, c : c + 8], src=tile)
    return out
