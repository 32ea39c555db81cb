# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_softmax
"""The maximum that a softmax subtracts is never below -1000."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.static_range(2):
        tile = nl.load(x[128 * row + p, f])
        top = nl.maximum(nl.max(tile, axis=1, keepdims=True), -1000.0)
        weight = nl.exp(nl.subtract(tile, top))
        nl.store(out[128 * row + p, f], value=nl.divide(weight, nl.sum(weight, axis=1, keepdims=True)))
    return out
