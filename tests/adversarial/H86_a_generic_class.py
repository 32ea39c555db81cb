# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""A class with a type variable holds the rows."""

from typing import Generic, TypeVar

import nki
import nki.isa as nisa
import nki.language as nl

T = TypeVar("T")


class Held(Generic[T]):
    def __init__(self, n):
        self.rows = list(range(n))


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in Held(2).rows:
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, 0 : 0 + 512])
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        nisa.dma_copy(dst=out[128 * row : 128 * row + 128, 0 : 0 + 512], src=tile)
    return out
