# expect: pass
# workload: st_softmax
"""The maximum is minus the minimum of the negative numbers."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.static_range(2):
        tile = nl.load(x[128 * row + p, f])
        low = nl.negative(nl.min(nl.negative(tile), axis=1, keepdims=True))
        weight = nl.exp(nl.subtract(tile, low))
        nl.store(out[128 * row + p, f], value=nl.divide(weight, nl.sum(weight, axis=1, keepdims=True)))
    return out
