# expect: reject
# caught by: timeout.trace_deadline
# workload: st_matmul
"""Never returns."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    while True:
        pass
