# expect: reject
# caught by: rejected.library
# unpoliced: compile_error.tile_operator
# workload: st_matmul
"""Multiplies with the @ operator on the host."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    return a @ b
