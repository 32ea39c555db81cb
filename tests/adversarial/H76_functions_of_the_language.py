# expect: pass
# workload: st_silu_current
# api: nki
# chip: trn2
"""Loads, computes and stores with functions that return tiles."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in nl.affine_range(2):
        tile = nl.load(x[nl.ds(128 * row, 128), :])
        nl.store(out[nl.ds(128 * row, 128), :], nl.multiply(tile, nl.sigmoid(tile)))
    return out
