"""One AdamW step, an instruction for each arithmetic operation, in chunks of 512 columns."""

import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(theta, g, m, v):
    out = nl.ndarray((10944, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    wide = nl.arange(1024)[None, :]
    f = nl.arange(512)[None, :]
    # 10944 rows are 85.5 tiles of 128: the last tile is masked.
    for row in nl.affine_range(86):
        for column in nl.affine_range(2):
            theta_tile = nl.ndarray((nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
            g_tile = nl.ndarray((nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
            m_tile = nl.ndarray((nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
            v_tile = nl.ndarray((nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
            out_tile = nl.ndarray((nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
            theta_tile[p, wide] = nl.load(theta[128 * row + p, 1024 * column + wide], mask=128 * row + p < 10944)
            m_tile[p, wide] = nl.load(m[128 * row + p, 1024 * column + wide], mask=128 * row + p < 10944)
            v_tile[p, wide] = nl.load(v[128 * row + p, 1024 * column + wide], mask=128 * row + p < 10944)
            g_tile[p, wide] = nl.load(g[128 * row + p, 1024 * column + wide], mask=128 * row + p < 10944)
            for chunk in nl.affine_range(2):
                decay = nisa.tensor_scalar(
                    data=theta_tile[p, 512 * chunk + f], op0=nl.multiply, operand0=1e-5, mask=128 * row + p < 10944
                )
                decayed = nl.subtract(theta_tile[p, 512 * chunk + f], decay, mask=128 * row + p < 10944)
                m_kept = nisa.tensor_scalar(
                    data=m_tile[p, 512 * chunk + f], op0=nl.multiply, operand0=0.9, mask=128 * row + p < 10944
                )
                g_part = nisa.tensor_scalar(
                    data=g_tile[p, 512 * chunk + f], op0=nl.multiply, operand0=0.1, mask=128 * row + p < 10944
                )
                m_new = nl.add(m_kept, g_part, mask=128 * row + p < 10944)
                step = nisa.tensor_scalar(data=m_new, op0=nl.multiply, operand0=0.01, mask=128 * row + p < 10944)
                v_kept = nisa.tensor_scalar(
                    data=v_tile[p, 512 * chunk + f], op0=nl.multiply, operand0=0.999, mask=128 * row + p < 10944
                )
                g_small = nisa.tensor_scalar(
                    data=g_tile[p, 512 * chunk + f], op0=nl.multiply, operand0=0.001, mask=128 * row + p < 10944
                )
                g_squared = nl.multiply(g_small, g_tile[p, 512 * chunk + f], mask=128 * row + p < 10944)
                v_new = nl.add(v_kept, g_squared, mask=128 * row + p < 10944)
                root = nisa.activation(op=nl.sqrt, data=v_new, scale=1000.0, mask=128 * row + p < 10944)
                denominator = nisa.tensor_scalar(data=root, op0=nl.add, operand0=1e-8, mask=128 * row + p < 10944)
                inverse = nisa.reciprocal(data=denominator, mask=128 * row + p < 10944)
                update = nl.multiply(step, inverse, mask=128 * row + p < 10944)
                out_tile[p, 512 * chunk + f] = nl.subtract(decayed, update, mask=128 * row + p < 10944)
            nl.store(out[128 * row + p, 1024 * column + wide], value=out_tile[p, wide], mask=128 * row + p < 10944)
    return out
