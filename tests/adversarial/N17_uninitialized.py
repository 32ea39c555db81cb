# expect: reject
# caught by: compile_error.undefined_read
# workload: st_matmul
"""Reads on-chip memory that nobody wrote."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    garbage = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    for row in nl.affine_range(2):
        nl.store(out[128 * row + p, f], value=garbage[p, f])
    return out
