# expect: reject
# caught by: rejected.library
# unpoliced: compile_error.numpy_on_tile
# workload: st_matmul
"""Calls numpy to multiply."""

import numpy as np

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    return np.matmul(a, b)
