# expect: reject
# caught by: compile_error.numpy_on_tile
# workload: st_matmul
"""Treats its arguments as arrays while it is traced."""

import numpy as np

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    answer = nl.shared_constant(np.asarray(a, dtype=np.float32) * 2)
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(256)[None, :]
    nl.store(out[p, c], value=nl.load(answer[p, c]))
    return out
