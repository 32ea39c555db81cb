# expect: reject
# caught by: rejected.getattr
# unpoliced: compile_error.kernel_result
# workload: st_matmul
"""Reaches for the data behind a tensor."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    for name in ("_data", "data", "numpy", "_array", "array", "value", "_value", "__array__"):
        found = getattr(a, name, None)
        if found is not None and hasattr(found, "shape"):
            return found
    return None
