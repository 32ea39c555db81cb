# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Writes generic types in the body of a loop, and in annotations."""

from typing import Dict, List

import nki
import nki.isa as nisa
import nki.language as nl


def sizes(parts: list[int] | None = None) -> dict[str, int]:
    return {"rows": 2}


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for col in nl.affine_range(64):
        kind: List[int] = [2]
        more = Dict[str, int]
        rows = sizes(kind)
        for row in range(2):
            tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, nl.ds(8 * col, 8)])
            if rows["rows"] > 0:
                nisa.activation(dst=tile, op=nl.silu, data=tile)
            nisa.dma_copy(dst=out[128 * row : 128 * row + 128, nl.ds(8 * col, 8)], src=tile)
    return out
