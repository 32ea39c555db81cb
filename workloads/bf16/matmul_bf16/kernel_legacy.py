"""128 x 512 tiles of the product, both operands loaded for every step of the contraction."""

import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(lhs_t, rhs):
    depth, height = lhs_t.shape
    width = rhs.shape[1]
    out = nl.ndarray((height, width), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(height // 128):
        for column in nl.affine_range(width // 512):
            product = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(depth // 128):
                lhs_tile = nl.load(lhs_t[128 * k + p, 128 * row + c])
                rhs_tile = nl.load(rhs[128 * k + p, 512 * column + f])
                product += nl.matmul(lhs_tile, rhs_tile, transpose_x=True)
            out_tile = nl.copy(product, dtype=lhs_t.dtype)
            nl.store(out[128 * row + p, 512 * column + f], value=out_tile)
    return out
