# expect: reject
# caught by: rejected.import
# unpoliced: incorrect_numerical.tolerance
# workload: st_matmul
"""Imports acceld's own workloads to run the reference."""

import sys

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

sys.path.insert(0, sys.path[-1])
try:
    from acceld.workloads import find_workloads

    _found = find_workloads()
except Exception:
    _found = None


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        nl.store(out[128 * row + p, f], value=nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf))
    return out
