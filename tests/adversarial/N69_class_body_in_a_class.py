# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_silu
# api: nki
# chip: trn2
"""A loop in the body of a class inside another class counts in an object of the function around both."""

import nki
import nki.isa as nisa
import nki.language as nl


class Held:
    def __init__(self):
        self.number = 0


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    held = Held()

    class Body:
        class Inner:
            for part in nl.affine_range(64):
                for row in range(2):
                    tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
                    nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, nl.ds(8 * part, 8)])
                    if held.number < 9:
                        nisa.activation(dst=tile, op=nl.silu, data=tile)
                    nisa.dma_copy(dst=out[128 * row : 128 * row + 128, nl.ds(8 * part, 8)], src=tile)
                held.number += 1

    return out
