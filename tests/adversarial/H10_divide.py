# expect: pass
# workload: st_softmax
"""Softmax with a division instead of a reciprocal."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    h = nl.arange(256)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        greatest = nl.max(tile, axis=[1])
        weight = nl.exp(nl.subtract(tile, greatest))
        total = nl.sum(weight, axis=[1])
        nl.store(out[128 * row + p, f], value=nl.divide(weight, total))
    return out
