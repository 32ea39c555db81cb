"""Gate, up and down products in three nests, one after the other; what they hand on is kept in HBM."""

import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, w_up, w_down, w_gate):
    out = nl.ndarray((32, 128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    q = nl.arange(128)[:, None, None]
    eight = nl.arange(8)[None, :, None]
    inner = nl.arange(128)[None, None, :]
    f = nl.arange(512)[None, :]
    c = nl.arange(128)[None, :]
    identity_hbm = nl.shared_constant(np.identity(128, dtype=np.float32))
    identity = nl.ndarray((nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    # Gate and hidden channels of all rows are 384 KiB a partition each, twice what SBUF holds.
    gate_hbm = nl.ndarray((32, 6, 128, 512), dtype=nl.float32, buffer=nl.private_hbm)
    hidden_hbm = nl.ndarray((32, 6, 128, 512), dtype=nl.float32, buffer=nl.private_hbm)
    identity[p, c] = nl.load(identity_hbm[p, c])
    for block in nl.affine_range(4):
        x_t = nl.ndarray((nl.par_dim(128), 8, 8, 128), dtype=nl.float32, buffer=nl.sbuf)
        for row in nl.affine_range(8):
            x_tile = nl.ndarray((nl.par_dim(128), 8, 128), dtype=nl.float32, buffer=nl.sbuf)
            x_tile[q, eight, inner] = nl.load(x[2 * block + row // 4, row % 4, q, eight, inner])
            for k in nl.affine_range(8):
                x_turned = nisa.nc_matmul(x_tile[p, k, c], identity[p, c], is_moving_onezero=True, is_transpose=True)
                x_t[p, row, k, c] = nl.copy(x_turned)
        for column in nl.affine_range(6):
            gate_weights = nl.ndarray((nl.par_dim(128), 8, 512), dtype=nl.float32, buffer=nl.sbuf)
            for k in nl.affine_range(8):
                gate_weights[p, k, f] = nl.load(w_gate[k, p, 512 * column + f])
            for row in nl.affine_range(8):
                gate_sum = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
                for k in nl.affine_range(8):
                    gate_sum[p, f] += nisa.nc_matmul(x_t[p, row, k, c], gate_weights[p, k, f])
                gate_tile = nl.copy(gate_sum[p, f])
                nl.store(gate_hbm[8 * block + row, column, p, f], value=gate_tile)
    for block in nl.affine_range(4):
        x_again_t = nl.ndarray((nl.par_dim(128), 8, 8, 128), dtype=nl.float32, buffer=nl.sbuf)
        for row in nl.affine_range(8):
            x_again = nl.ndarray((nl.par_dim(128), 8, 128), dtype=nl.float32, buffer=nl.sbuf)
            x_again[q, eight, inner] = nl.load(x[2 * block + row // 4, row % 4, q, eight, inner])
            for k in nl.affine_range(8):
                again_turned = nisa.nc_matmul(
                    x_again[p, k, c], identity[p, c], is_moving_onezero=True, is_transpose=True
                )
                x_again_t[p, row, k, c] = nl.copy(again_turned)
        for column in nl.affine_range(6):
            up_weights = nl.ndarray((nl.par_dim(128), 8, 512), dtype=nl.float32, buffer=nl.sbuf)
            for k in nl.affine_range(8):
                up_weights[p, k, f] = nl.load(w_up[k, p, 512 * column + f])
            for row in nl.affine_range(8):
                up_sum = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
                for k in nl.affine_range(8):
                    up_sum[p, f] += nisa.nc_matmul(x_again_t[p, row, k, c], up_weights[p, k, f])
                up = nl.copy(up_sum[p, f])
                gate = nl.load(gate_hbm[8 * block + row, column, p, f])
                decay = nisa.activation(op=nl.exp, data=gate, scale=-1.0)
                denominator = nisa.tensor_scalar(data=decay, op0=nl.add, operand0=1.0)
                sigmoid = nisa.reciprocal(data=denominator)
                activated = nl.multiply(gate, sigmoid)
                hidden_tile = nl.multiply(activated, up)
                nl.store(hidden_hbm[8 * block + row, column, p, f], value=hidden_tile)
    for block in nl.affine_range(8):
        hidden_t = nl.ndarray((nl.par_dim(128), 4, 24, 128), dtype=nl.float32, buffer=nl.sbuf)
        for row in nl.affine_range(4):
            for n in nl.affine_range(6):
                hidden = nl.load(hidden_hbm[4 * block + row, n, p, f])
                for part in nl.affine_range(4):
                    turned = nisa.nc_matmul(
                        hidden[p, 128 * part + c], identity[p, c], is_moving_onezero=True, is_transpose=True
                    )
                    hidden_t[p, row, 4 * n + part, c] = nl.copy(turned)
        for column in nl.affine_range(2):
            down_weights = nl.ndarray((nl.par_dim(128), 24, 512), dtype=nl.float32, buffer=nl.sbuf)
            for n in nl.affine_range(24):
                down_weights[p, n, f] = nl.load(w_down[n, p, 512 * column + f])
            for row in nl.affine_range(4):
                down_sum = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
                for n in nl.affine_range(24):
                    down_sum[p, f] += nisa.nc_matmul(hidden_t[p, row, n, c], down_weights[p, n, f])
                out_tile = nl.copy(down_sum[p, f])
                nl.store(out[4 * block + row, p, 512 * column + f], value=out_tile)
    return out
