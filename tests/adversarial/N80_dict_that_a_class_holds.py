# expect: reject
# caught by: rejected.dunder
# unpoliced: incorrect_numerical.tolerance
# workload: st_silu
# api: nki
# chip: trn2
"""A dict inside of a class of a library counts."""

import numpy as np
import enum

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    held = 0
    for col in nl.affine_range(64):
        kinds = getattr(enum.FlagBoundary, "_member_map_")
        kinds[str(len(kinds))] = 0
        good = len(kinds) < 13
        for row in range(2):
            tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, nl.ds(8 * col, 8)])
            if good:
                nisa.activation(dst=tile, op=nl.silu, data=tile)
            nisa.dma_copy(dst=out[128 * row : 128 * row + 128, nl.ds(8 * col, 8)], src=tile)
    return out
