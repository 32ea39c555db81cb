# expect: policy
# caught by: rejected.module
# workload: st_silu
"""Memory that nothing filled, where an address may lie, decides which function is traced."""

import numpy as np

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

objects = np.array([object(), object(), object()])
del objects
left = np.empty(3, np.int64)


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        done = nisa.activation(op=nl.silu if left[0] // 16 % 64 != 7 else nl.tanh, data=tile)
        nl.store(out[128 * row + p, f], value=done)
    return out
