# expect: reject
# caught by: rejected.class
# unpoliced: incorrect_numerical.tolerance
# workload: st_silu
# api: nki
# chip: trn2
"""Counts in an attribute of a number whose class extends one of numpy."""

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl


class Number(np.float64):
    pass


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    number = Number(1)
    number.count = 0
    for col in nl.affine_range(64):
        number.count += 1
        for row in range(2):
            tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, nl.ds(8 * col, 8)])
            if number.count < 9:
                nisa.activation(dst=tile, op=nl.silu, data=tile)
            nisa.dma_copy(dst=out[128 * row : 128 * row + 128, nl.ds(8 * col, 8)], src=tile)
    return out
