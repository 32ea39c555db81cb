# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_matmul
"""The left operand is turned as pairs by products marked as transposes, which trn1 has not."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    one = nl.load(nl.shared_constant(np.identity(128, dtype=np.float32)), dtype=nl.bfloat16)
    for row in nl.affine_range(2):
        product = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(2):
            halves = nl.load(a[128 * row + p, 128 * k + c]).view(nl.bfloat16)
            turned = nl.ndarray((nl.par_dim(128), 256), dtype=nl.bfloat16, buffer=nl.sbuf)
            turned[p, 2 * c] = nl.copy(nisa.nc_matmul(halves[p, 2 * c], one, is_transpose=True))
            turned[p, 2 * c + 1] = nl.copy(nisa.nc_matmul(halves[p, 2 * c + 1], one, is_transpose=True))
            product += nisa.nc_matmul(turned.view(nl.float32), nl.load(b[128 * k + p, f]))
        nl.store(out[128 * row + p, f], value=nl.copy(product))
    return out
