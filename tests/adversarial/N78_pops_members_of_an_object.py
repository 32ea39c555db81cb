# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_silu
# api: nki
# chip: trn2
"""Does so with a set that an object holds."""

import nki
import nki.isa as nisa
import nki.language as nl


class Members:
    def __init__(self):
        self.held = set(range(32))

    def turn(self):
        one = self.held.pop()
        self.held.add(one)
        return one < 12


MEMBERS = Members()


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for col in nl.affine_range(64):
        good = MEMBERS.turn()
        for row in range(2):
            tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, nl.ds(8 * col, 8)])
            if good:
                nisa.activation(dst=tile, op=nl.silu, data=tile)
            nisa.dma_copy(dst=out[128 * row : 128 * row + 128, nl.ds(8 * col, 8)], src=tile)
    return out
