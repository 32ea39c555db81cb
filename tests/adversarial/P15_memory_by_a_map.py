# expect: policy
# caught by: rejected.interpreter
# workload: st_silu
"""An array of memory that nothing filled is made by map, not by the kernel, and decides which function is traced."""

import numpy as np

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

left = [*map(np.ndarray, [(3,)])][0]


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
