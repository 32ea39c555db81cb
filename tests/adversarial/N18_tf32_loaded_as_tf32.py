# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_matmul
"""The arguments are loaded as if they held TF32: a transfer moves bits, and rounds nothing."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    right_t = nl.ndarray((2, nl.par_dim(128), 512), dtype=nl.tfloat32, buffer=nl.sbuf)
    left_t = nl.ndarray((2, 2, nl.par_dim(128), 128), dtype=nl.tfloat32, buffer=nl.sbuf)
    left = nl.ndarray((2, 2, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    for k in nl.affine_range(2):
        right_t[k, p, f] = nl.load(b.view(nl.tfloat32)[128 * k + p, f])
    for row in nl.affine_range(2):
        for k in nl.affine_range(2):
            left[row, k, p, c] = nl.copy(nisa.nc_transpose(nl.load(a[128 * row + p, 128 * k + c])))
            left_t[row, k, p, c] = nl.copy(left.view(nl.tfloat32)[row, k, p, c])
    for row in nl.affine_range(2):
        product = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(2):
            product += nisa.nc_matmul(left_t[row, k, p, c], right_t[k, p, f])
        nl.store(out[128 * row + p, f], value=nl.copy(product))
    return out
