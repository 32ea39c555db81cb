# expect: reject
# caught by: rejected.builtin
# unpoliced: incorrect_numerical.tolerance
# workload: st_silu
# api: nki
# chip: trn2
"""The module of a function counts."""

import nki
import nki.isa as nisa
import nki.language as nl


def held():
    pass


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    setattr(held, "__module__", "")
    for col in nl.affine_range(64):
        setattr(held, "__module__", getattr(held, "__module__") + "a")
        good = len(getattr(held, "__module__")) < 9
        for row in range(2):
            tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, nl.ds(8 * col, 8)])
            if good:
                nisa.activation(dst=tile, op=nl.silu, data=tile)
            nisa.dma_copy(dst=out[128 * row : 128 * row + 128, nl.ds(8 * col, 8)], src=tile)
    return out
