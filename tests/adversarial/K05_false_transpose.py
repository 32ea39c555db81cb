# expect: reject
# caught by: runtime_error.transpose_identity
# workload: st_matmul
"""Calls a multiplication a transpose, which is cheaper."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    for row in nl.affine_range(2):
        for column in nl.affine_range(4):
            product = nl.zeros((nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(2):
                left = nl.load_transpose2d(a[128 * row + p, 128 * k + c])
                right = nl.load(b[128 * k + p, 128 * column + c])
                product += nisa.nc_matmul(left, right, is_transpose=True)
            nl.store(out[128 * row + p, 128 * column + c], value=nl.copy(product))
    return out
