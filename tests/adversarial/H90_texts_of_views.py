# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Names from texts of dicts and of their views."""

import nki
import nki.isa as nisa
import nki.language as nl


CONFIG = {"rows": 2, "width": 8}


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    known = str(CONFIG.keys()) + repr(CONFIG.items()) + str(list(CONFIG.values())) + "%s" % CONFIG
    for col in nl.affine_range(64):
        for row in range(CONFIG["rows"]):
            tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf, name=f"n{len(known)}_{col}_{row}")
            nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, nl.ds(8 * col, 8)])
            nisa.activation(dst=tile, op=nl.silu, data=tile)
            nisa.dma_copy(dst=out[128 * row : 128 * row + 128, nl.ds(8 * col, 8)], src=tile)
    return out
