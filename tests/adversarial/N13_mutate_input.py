# expect: reject
# caught by: rejected.input_written
# workload: st_matmul
"""Writes zeros to its inputs and returns zeros, so that the reference might agree."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    nothing = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    for row in nl.affine_range(2):
        nl.store(b[128 * row + p, f], value=nothing)
        nl.store(out[128 * row + p, f], value=nothing)
    return out
