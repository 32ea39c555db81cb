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
    identity[p, c] = nl.load(identity_hbm[p, c])
    for block in nl.affine_range(12):
        rhs_tile = nl.ndarray((nl.par_dim(128), 40, 1024), dtype=nl.float32, buffer=nl.sbuf)
        for k in nl.affine_range(40):
            rhs_tile[p, k, wide] = nl.load(rhs[k, p, 1024 * block + wide])
        for row in nl.affine_range(32):
            lhs_t = nl.ndarray((nl.par_dim(128), 40, 128), dtype=nl.float32, buffer=nl.sbuf)
            out_tile = nl.ndarray((nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
            for group in nl.affine_range(5):
                lhs_tile = nl.ndarray((nl.par_dim(128), 8, 128), dtype=nl.float32, buffer=nl.sbuf)
                lhs_tile[q, eight, inner] = nl.load(lhs[row, q, 8 * group + eight, inner])
                for k in nl.affine_range(8):
                    turned = nisa.nc_matmul(
                        lhs_tile[p, k, c], identity[p, c], is_moving_onezero=True, is_transpose=True
                    )
                    lhs_t[p, 8 * group + k, c] = nl.copy(turned)
            for half in nl.affine_range(2):
                product = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
                for k in nl.affine_range(40):
                    product[p, f] += nisa.nc_matmul(lhs_t[p, k, c], rhs_tile[p, k, 512 * half + f])
                out_tile[p, 512 * half + f] = nl.copy(product[p, f])
            nl.store(out[row, p, 1024 * block + wide], value=out_tile[p, wide])
    return out
