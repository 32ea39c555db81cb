# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""The body of a class has a long loop, which counts nothing."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)

    class Rows:
        for part in nl.affine_range(64):
            for row in range(2):
                tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
                nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, 8 * part : 8 * part + 8])
                nisa.activation(dst=tile, op=nl.silu, data=tile)
                nisa.dma_copy(dst=out[128 * row : 128 * row + 128, 8 * part : 8 * part + 8], src=tile)

    return out
