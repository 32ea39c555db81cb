# expect: reject
# caught by: compile_error.base_partition
# workload: st_matmul
"""The two operands of each product lie on different halves of the array."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    h = nl.arange(64)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        product = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(2):
            turned = nisa.nc_transpose(nl.load(a[128 * row + p, 128 * k + c]))
            left = nl.ndarray((nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
            left[64 + h, c] = nl.copy(turned[h, c])
            left[h, c] = nl.copy(turned[64 + h, c])
            right = nl.load(b[128 * k + p, f])
            product += nisa.nc_matmul(left[64 + h, c], right[h, f])
            product += nisa.nc_matmul(left[h, c], right[64 + h, f])
        nl.store(out[128 * row + p, f], value=nl.copy(product))
    return out
