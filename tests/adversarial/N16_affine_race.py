# expect: reject
# caught by: compile_error.output_dependency
# workload: st_matmul
"""Carries a sum through a loop that claims independent iterations."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        kept = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        for k in nl.affine_range(2):
            kept[p, f] = nl.copy(nl.matmul(nl.load(a[128 * row + p, 128 * k + c]), nl.load(b[128 * k + p, f])))
        nl.store(out[128 * row + p, f], value=kept)
    return out
