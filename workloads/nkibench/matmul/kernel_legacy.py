"""Matrix product by blocks of 1024 columns; a block of the right operand is kept, rows are transposed as they come."""

import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    out = nl.ndarray((32, 128, 12288), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    q = nl.arange(128)[:, None, None]
    eight = nl.arange(8)[None, :, None]
    inner = nl.arange(128)[None, None, :]
    wide = nl.arange(1024)[None, :]
    f = nl.arange(512)[None, :]
    c = nl.arange(128)[None, :]
    identity_hbm = nl.shared_constant(np.identity(128, dtype=np.float32))
    identity = nl.ndarray((nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    rhs_tile = nl.ndarray((12, 40, nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
    lhs_tile = nl.ndarray((12, 32, 5, nl.par_dim(128), 8, 128), dtype=nl.float32, buffer=nl.sbuf)
    turned = nl.zeros((12, 32, 5, 8, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.psum, lazy_initialization=True)
    lhs_t = nl.ndarray((12, 32, 40, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    product = nl.zeros((12, 32, 2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum, lazy_initialization=True)
    out_tile = nl.ndarray((12, 32, nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
    identity[p, c] = nl.load(identity_hbm[p, c])
    for block in nl.affine_range(12):
        for k in nl.affine_range(40):
            rhs_tile[block, k, p, wide] = nl.load(rhs[k, p, 1024 * block + wide])
        for row in nl.affine_range(32):
            for group in nl.affine_range(5):
                lhs_tile[block, row, group, q, eight, inner] = nl.load(lhs[row, q, 8 * group + eight, inner])
                for k in nl.affine_range(8):
                    turned[block, row, group, k, p, c] = nisa.nc_matmul(
                        lhs_tile[block, row, group, p, k, c], identity[p, c], is_moving_onezero=True, is_transpose=True
                    )
                    lhs_t[block, row, 8 * group + k, p, c] = nl.copy(turned[block, row, group, k, p, c])
            for half in nl.affine_range(2):
                for k in nl.affine_range(40):
                    product[block, row, half, p, f] += nisa.nc_matmul(
                        lhs_t[block, row, k, p, c], rhs_tile[block, k, p, 512 * half + f]
                    )
                out_tile[block, row, p, 512 * half + f] = nl.copy(product[block, row, half, p, f])
            nl.store(out[row, p, 1024 * block + wide], value=out_tile[block, row, p, wide])
    return out
