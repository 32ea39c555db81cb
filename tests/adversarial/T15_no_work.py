# expect: reject
# caught by: compile_error.undefined_output
# workload: st_matmul
"""Returns an output that nothing was written to: no instruction, no time."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    return nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
