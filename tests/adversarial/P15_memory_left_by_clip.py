# expect: policy
# caught by: rejected.interpreter
# workload: st_silu
"""Elements that a function of numpy does not write hold what lay there before, which decides which function is traced."""

import numpy as np

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

left = np.clip(np.ones(3), 0.0, 2.0, where=False)


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        done = nisa.activation(op=nl.silu if left[0] != 7.0 else nl.tanh, data=tile)
        nl.store(out[128 * row + p, f], value=done)
    return out
