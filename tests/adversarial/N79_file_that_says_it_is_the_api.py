# expect: reject
# caught by: rejected.dunder
# unpoliced: incorrect_numerical.tolerance
# workload: st_silu
# api: nki
# chip: trn2
"""Counts in a closure, in a file that says it is a module of the API."""

import nki
import nki.isa as nisa
import nki.language as nl


__name__ = "nki.helpers"


def made():
    count = [0]

    def step():
        count[0] += 1
        return count[0] < 9

    return step


step = made()


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for col in nl.affine_range(64):
        good = step()
        for row in range(2):
            tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, nl.ds(8 * col, 8)])
            if good:
                nisa.activation(dst=tile, op=nl.silu, data=tile)
            nisa.dma_copy(dst=out[128 * row : 128 * row + 128, nl.ds(8 * col, 8)], src=tile)
    return out
