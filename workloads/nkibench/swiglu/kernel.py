"""Gate and up products of four row tiles at a time, element-wise work, then the down product; weights once a block."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, w_up, w_down, w_gate):
    out = nl.ndarray((32, 128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    for block in nl.affine_range(8):
        x_t = nl.ndarray((128, 4, 8, 128), dtype=nl.float32, buffer=nl.sbuf)
        # The down product contracts over the 3072 hidden channels, so they are kept transposed.
        hidden_t = nl.ndarray((128, 4, 24, 128), dtype=nl.float32, buffer=nl.sbuf)
        for row in nl.affine_range(4):
            x_tile = nl.ndarray((128, 8, 128), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=x_tile, src=x[block, row, 0:128, 0:8, 0:128])
            for k in nl.affine_range(8):
                x_turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
                nisa.nc_transpose(dst=x_turned, data=x_tile[0:128, k, 0:128])
                nisa.tensor_copy(dst=x_t[0:128, row, k, 0:128], src=x_turned)
        for column in nl.affine_range(6):
            gate_weights = nl.ndarray((128, 8, 512), dtype=nl.float32, buffer=nl.sbuf)
            up_weights = nl.ndarray((128, 8, 512), dtype=nl.float32, buffer=nl.sbuf)
            for k in nl.affine_range(8):
                nisa.dma_copy(dst=gate_weights[0:128, k, 0:512], src=w_gate[k, 0:128, nl.ds(512 * column, 512)])
                nisa.dma_copy(dst=up_weights[0:128, k, 0:512], src=w_up[k, 0:128, nl.ds(512 * column, 512)])
            for row in nl.affine_range(4):
                gate = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
                up = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
                decay = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
                denominator = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
                sigmoid = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
                activated = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
                hidden = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
                for k in nl.affine_range(8):
                    nisa.nc_matmul(
                        dst=gate,
                        stationary=x_t[0:128, row, k, 0:128],
                        moving=gate_weights[0:128, k, 0:512],
                        accumulate=k > 0,
                    )
                for k in nl.affine_range(8):
                    nisa.nc_matmul(
                        dst=up,
                        stationary=x_t[0:128, row, k, 0:128],
                        moving=up_weights[0:128, k, 0:512],
                        accumulate=k > 0,
                    )
                nisa.activation(dst=decay, op=nl.exp, data=gate, scale=-1.0)
                nisa.tensor_scalar(dst=denominator, data=decay, op0=nl.add, operand0=1.0)
                nisa.reciprocal(dst=sigmoid, data=denominator)
                # The vector engine takes one operand of two from PSUM, not both.
                nisa.tensor_tensor(dst=activated, data1=gate, data2=sigmoid, op=nl.multiply)
                nisa.tensor_tensor(dst=hidden, data1=activated, data2=up, op=nl.multiply)
                for part in nl.affine_range(4):
                    turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
                    nisa.nc_transpose(dst=turned, data=hidden[0:128, nl.ds(128 * part, 128)])
                    nisa.tensor_copy(dst=hidden_t[0:128, row, 4 * column + part, 0:128], src=turned)
        for column in nl.affine_range(2):
            down_weights = nl.ndarray((128, 24, 512), dtype=nl.float32, buffer=nl.sbuf)
            for n in nl.affine_range(24):
                nisa.dma_copy(dst=down_weights[0:128, n, 0:512], src=w_down[n, 0:128, nl.ds(512 * column, 512)])
            for row in nl.affine_range(4):
                down = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
                out_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
                for n in nl.affine_range(24):
                    nisa.nc_matmul(
                        dst=down,
                        stationary=hidden_t[0:128, row, n, 0:128],
                        moving=down_weights[0:128, n, 0:512],
                        accumulate=n > 0,
                    )
                nisa.tensor_copy(dst=out_tile, src=down)
                nisa.dma_copy(dst=out[4 * block + row, 0:128, nl.ds(512 * column, 512)], src=out_tile)
    return out
