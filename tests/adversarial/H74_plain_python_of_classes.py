# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""A generic class, an exception and a main block, in a file whose text says __name__ and __builtins__."""

from typing import Generic, TypeVar

import nki
import nki.isa as nisa
import nki.language as nl

T = TypeVar("T")


class Held(Generic[T]):
    """Hold one value of any type."""

    def __init__(self, value: T) -> None:
        self.value = value


class TooWide(ValueError):
    """The rows do not fit."""


@nki.jit
def kernel(x):
    if x.shape[1] > 4096:
        raise TooWide(f"rows of {x.shape[1]} elements")
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    rows = Held(128)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[rows.value * row : rows.value * (row + 1), :])
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        nisa.dma_copy(dst=out[rows.value * row : rows.value * (row + 1), :], src=tile)
    return out


if __name__ == "__main__":
    import torch

    print(kernel(torch.ones(256, 512)))
