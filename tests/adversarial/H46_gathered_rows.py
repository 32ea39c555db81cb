# expect: pass
# workload: st_silu
"""Rows are loaded through a tile of their numbers, in the order in which they lie."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        numbers = nisa.iota(128 * row + p, dtype=nl.int32)
        tile = nl.load(x[numbers[p, 0], f])
        nl.store(out[128 * row + p, f], value=nl.multiply(tile, nl.sigmoid(tile)))
    return out
