# expect: reject
# caught by: rejected.class
# unpoliced: incorrect_numerical.tolerance
# workload: st_silu
# api: nki
# chip: trn2
"""A number of its own class, which has an attribute, counts the iterations."""

import nki
import nki.isa as nisa
import nki.language as nl


class Number(float):
    def after(self):
        following = Number(self + 1)
        following.unit = "tiles"
        return following


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    n = Number(0).after()
    for col in nl.affine_range(64):
        n = n.after()
        for row in range(2):
            tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, nl.ds(8 * col, 8)])
            if n < 9:
                nisa.activation(dst=tile, op=nl.silu, data=tile)
            nisa.dma_copy(dst=out[128 * row : 128 * row + 128, nl.ds(8 * col, 8)], src=tile)
    return out
