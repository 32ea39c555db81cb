# expect: reject
# caught by: compile_error.matmul_shape
# workload: st_matmul
"""Multiplies into more than a PSUM bank."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    both = nl.ndarray((nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
    both[p, f] = nl.load(b[p, f])
    both[p, 512 + f] = nl.load(b[128 + p, f])
    wide = nisa.nc_matmul(nl.load_transpose2d(a[p, c]), both)
    for row in nl.affine_range(2):
        nl.store(out[128 * row + p, f], value=nl.copy(wide[p, f]))
    return out
