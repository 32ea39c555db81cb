"""One AdamW step, an instruction for each arithmetic operation, on tiles of 128 rows and 1024 columns."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(theta, g, m, v):
    height, width = theta.shape
    out = nl.ndarray((height, width), dtype=nl.float32, buffer=nl.shared_hbm)
    # 10944 rows are 85.5 tiles of 128: the last tile is half as high.
    for row in nl.affine_range((height + 127) // 128):
        rows = min(128, height - 128 * row)
        for column in nl.affine_range(width // 1024):
            theta_tile = nl.ndarray((rows, 1024), dtype=nl.float32, buffer=nl.sbuf)
            g_tile = nl.ndarray((rows, 1024), dtype=nl.float32, buffer=nl.sbuf)
            m_tile = nl.ndarray((rows, 1024), dtype=nl.float32, buffer=nl.sbuf)
            v_tile = nl.ndarray((rows, 1024), dtype=nl.float32, buffer=nl.sbuf)
            decay = nl.ndarray((rows, 1024), dtype=nl.float32, buffer=nl.sbuf)
            decayed = nl.ndarray((rows, 1024), dtype=nl.float32, buffer=nl.sbuf)
            m_kept = nl.ndarray((rows, 1024), dtype=nl.float32, buffer=nl.sbuf)
            g_part = nl.ndarray((rows, 1024), dtype=nl.float32, buffer=nl.sbuf)
            m_new = nl.ndarray((rows, 1024), dtype=nl.float32, buffer=nl.sbuf)
            step = nl.ndarray((rows, 1024), dtype=nl.float32, buffer=nl.sbuf)
            v_kept = nl.ndarray((rows, 1024), dtype=nl.float32, buffer=nl.sbuf)
            g_small = nl.ndarray((rows, 1024), dtype=nl.float32, buffer=nl.sbuf)
            g_squared = nl.ndarray((rows, 1024), dtype=nl.float32, buffer=nl.sbuf)
            v_new = nl.ndarray((rows, 1024), dtype=nl.float32, buffer=nl.sbuf)
            root = nl.ndarray((rows, 1024), dtype=nl.float32, buffer=nl.sbuf)
            denominator = nl.ndarray((rows, 1024), dtype=nl.float32, buffer=nl.sbuf)
            inverse = nl.ndarray((rows, 1024), dtype=nl.float32, buffer=nl.sbuf)
            update = nl.ndarray((rows, 1024), dtype=nl.float32, buffer=nl.sbuf)
            out_tile = nl.ndarray((rows, 1024), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=theta_tile, src=theta[nl.ds(128 * row, rows), nl.ds(1024 * column, 1024)])
            nisa.dma_copy(dst=g_tile, src=g[nl.ds(128 * row, rows), nl.ds(1024 * column, 1024)])
            nisa.dma_copy(dst=m_tile, src=m[nl.ds(128 * row, rows), nl.ds(1024 * column, 1024)])
            nisa.dma_copy(dst=v_tile, src=v[nl.ds(128 * row, rows), nl.ds(1024 * column, 1024)])
            nisa.tensor_scalar(dst=decay, data=theta_tile, op0=nl.multiply, operand0=1e-5)
            nisa.tensor_tensor(dst=decayed, data1=theta_tile, data2=decay, op=nl.subtract)
            nisa.tensor_scalar(dst=m_kept, data=m_tile, op0=nl.multiply, operand0=0.9)
            nisa.tensor_scalar(dst=g_part, data=g_tile, op0=nl.multiply, operand0=0.1)
            nisa.tensor_tensor(dst=m_new, data1=m_kept, data2=g_part, op=nl.add)
            nisa.tensor_scalar(dst=step, data=m_new, op0=nl.multiply, operand0=0.01)
            nisa.tensor_scalar(dst=v_kept, data=v_tile, op0=nl.multiply, operand0=0.999)
            nisa.tensor_scalar(dst=g_small, data=g_tile, op0=nl.multiply, operand0=0.001)
            nisa.tensor_tensor(dst=g_squared, data1=g_small, data2=g_tile, op=nl.multiply)
            nisa.tensor_tensor(dst=v_new, data1=v_kept, data2=g_squared, op=nl.add)
            nisa.activation(dst=root, op=nl.sqrt, data=v_new, scale=1000.0)
            nisa.tensor_scalar(dst=denominator, data=root, op0=nl.add, operand0=1e-8)
            nisa.reciprocal(dst=inverse, data=denominator)
            nisa.tensor_tensor(dst=update, data1=step, data2=inverse, op=nl.multiply)
            nisa.tensor_tensor(dst=out_tile, data1=decayed, data2=update, op=nl.subtract)
            nisa.dma_copy(dst=out[nl.ds(128 * row, rows), nl.ds(1024 * column, 1024)], src=out_tile)
    return out
