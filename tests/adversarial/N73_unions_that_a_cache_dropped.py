# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_silu
# api: nki
# chip: trn2
"""Unions that a cache has dropped count the iterations."""

from typing import Union

import nki
import nki.isa as nisa
import nki.language as nl


def made():
    class Mark:
        pass

    return Mark


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    marks = [made() for _ in range(40)]
    kept = [Union[one, int] for one in marks]
    for col in nl.affine_range(64):
        good = sum(Union[one, int] is old for one, old in zip(marks, kept))
        most = [Union[one, int] for one in marks[:good][::-1] + marks[good:]]
        most = [Union[made(), int] for _ in range(129 - 40)] if good > 30 else []
        few, most, good = good > 30, [], 0
        for row in range(2):
            tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, nl.ds(8 * col, 8)])
            if few:
                nisa.activation(dst=tile, op=nl.silu, data=tile)
            nisa.dma_copy(dst=out[128 * row : 128 * row + 128, nl.ds(8 * col, 8)], src=tile)
    return out
