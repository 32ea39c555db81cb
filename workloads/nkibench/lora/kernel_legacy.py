"""Low-rank correction first, for all rows; then the large product by blocks of 512 columns, the two added at the end."""

import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, w, a, b):
    out = nl.ndarray((8, 4, 128, 96, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    q = nl.arange(128)[:, None, None]
    eight = nl.arange(8)[None, :, None]
    four = nl.arange(4)[None, :, None]
    inner = nl.arange(128)[None, None, :]
    f = nl.arange(512)[None, :]
    c = nl.arange(128)[None, :]
    identity_hbm = nl.shared_constant(np.identity(128, dtype=np.float32))
    identity = nl.ndarray((nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    a_tile = nl.ndarray((40, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    x_t = nl.ndarray((32, 40, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    low_sum = nl.zeros((32, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.psum, lazy_initialization=True)
    low_t = nl.ndarray((32, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    identity[p, c] = nl.load(identity_hbm[p, c])
    for k in nl.affine_range(40):
        a_tile[k, p, c] = nl.load(a[k, p, c])
    for row in nl.affine_range(32):
        for group in nl.affine_range(5):
            x_tile = nl.ndarray((nl.par_dim(128), 8, 128), dtype=nl.float32, buffer=nl.sbuf)
            x_tile[q, eight, inner] = nl.load(x[row // 4, row % 4, q, 8 * group + eight, inner])
            for k in nl.affine_range(8):
                turned = nisa.nc_matmul(x_tile[p, k, c], identity[p, c], is_moving_onezero=True, is_transpose=True)
                x_t[row, 8 * group + k, p, c] = nl.copy(turned)
        for k in nl.affine_range(40):
            low_sum[row, p, c] += nisa.nc_matmul(a_tile[k, p, c], x_t[row, k, p, c])
        low_t[row, p, c] = nl.copy(low_sum[row, p, c])
    for block in nl.affine_range(24):
        w_tile = nl.ndarray((40, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        b_tile = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        for k in nl.affine_range(40):
            w_tile[k, p, f] = nl.load(w[k, p, 512 * block + f])
        b_tile[p, f] = nl.load(b[p, 512 * block + f])
        for row in nl.affine_range(32):
            full_sum = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
            out_tile = nl.ndarray((nl.par_dim(128), 4, 128), dtype=nl.float32, buffer=nl.sbuf)
            for k in nl.affine_range(40):
                full_sum += nisa.nc_matmul(x_t[row, k, p, c], w_tile[k, p, f])
            full = nl.copy(full_sum)
            correction = nisa.nc_matmul(low_t[row, p, c], b_tile[p, f])
            for part in nl.affine_range(4):
                out_tile[p, part, c] = nl.add(full[p, 128 * part + c], correction[p, 128 * part + c])
            nl.store(out[row // 4, row % 4, q, 4 * block + four, inner], value=out_tile[q, four, inner])
    return out
