# expect: reject
# caught by: compile_error.entry
# workload: st_matmul
"""Holds no kernel."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


VALUE = 1
