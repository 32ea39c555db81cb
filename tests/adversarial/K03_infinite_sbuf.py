# expect: reject
# caught by: compile_error.sbuf_capacity
# workload: st_matmul
"""Keeps more on the chip in one instruction than the chip holds."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    w = nl.arange(200000)[None, :]
    huge = nl.zeros((nl.par_dim(128), 200000), dtype=nl.float32, buffer=nl.sbuf)
    huge[p, w] = nl.add(huge[p, w], 1.0)
    for row in nl.affine_range(2):
        nl.store(out[128 * row + p, f], value=huge[p, f])
    return out
