"""Low-rank part of all rows first, the transposed rows kept in HBM; then the large product by blocks of 512 columns."""

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
    forty = nl.arange(40)[None, :, None]
    four = nl.arange(4)[None, :, None]
    inner = nl.arange(128)[None, None, :]
    f = nl.arange(512)[None, :]
    c = nl.arange(128)[None, :]
    identity_hbm = nl.shared_constant(np.identity(128, dtype=np.float32))
    identity = nl.ndarray((nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    a_tile = nl.ndarray((nl.par_dim(128), 40, 128), dtype=nl.float32, buffer=nl.sbuf)
    low_t = nl.ndarray((nl.par_dim(128), 32, 128), dtype=nl.float32, buffer=nl.sbuf)
    # All rows transposed are 640 KiB a partition, three times what SBUF holds.
    x_t_hbm = nl.ndarray((32, 128, 40, 128), dtype=nl.float32, buffer=nl.private_hbm)
    identity[p, c] = nl.load(identity_hbm[p, c])
    for k in nl.affine_range(40):
        a_tile[p, k, c] = nl.load(a[k, p, c])
    for row in nl.affine_range(32):
        low_sum = nl.zeros((nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.psum)
        for group in nl.affine_range(5):
            x_tile = nl.ndarray((nl.par_dim(128), 8, 128), dtype=nl.float32, buffer=nl.sbuf)
            x_t = nl.ndarray((nl.par_dim(128), 8, 128), dtype=nl.float32, buffer=nl.sbuf)
            x_tile[q, eight, inner] = nl.load(x[row // 4, row % 4, q, 8 * group + eight, inner])
            for k in nl.affine_range(8):
                turned = nisa.nc_matmul(x_tile[p, k, c], identity[p, c], is_moving_onezero=True, is_transpose=True)
                x_t[p, k, c] = nl.copy(turned)
            for k in nl.affine_range(8):
                low_sum[p, c] += nisa.nc_matmul(a_tile[p, 8 * group + k, c], x_t[p, k, c])
            nl.store(x_t_hbm[row, q, 8 * group + eight, inner], value=x_t[q, eight, inner])
        low_t[p, row, c] = nl.copy(low_sum[p, c])
    for block in nl.affine_range(24):
        w_tile = nl.ndarray((nl.par_dim(128), 40, 512), dtype=nl.float32, buffer=nl.sbuf)
        b_tile = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        for k in nl.affine_range(40):
            w_tile[p, k, f] = nl.load(w[k, p, 512 * block + f])
        b_tile[p, f] = nl.load(b[p, 512 * block + f])
        for row in nl.affine_range(32):
            x_again = nl.ndarray((nl.par_dim(128), 40, 128), dtype=nl.float32, buffer=nl.sbuf)
            full_sum = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
            out_tile = nl.ndarray((nl.par_dim(128), 4, 128), dtype=nl.float32, buffer=nl.sbuf)
            x_again[q, forty, inner] = nl.load(x_t_hbm[row, q, forty, inner])
            for k in nl.affine_range(40):
                full_sum[p, f] += nisa.nc_matmul(x_again[p, k, c], w_tile[p, k, f])
            full = nl.copy(full_sum[p, f])
            correction = nisa.nc_matmul(low_t[p, row, c], b_tile[p, f])
            for part in nl.affine_range(4):
                out_tile[p, part, c] = nl.add(full[p, 128 * part + c], correction[p, 128 * part + c])
            nl.store(out[row // 4, row % 4, q, 4 * block + four, inner], value=out_tile[q, four, inner])
    return out
