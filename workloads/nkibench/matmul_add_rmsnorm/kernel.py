"""128 rows of the product with the residual added, then RMS normalization of the whole rows."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, w, eps, z, g):
    height, depth = x.shape
    width = w.shape[1]
    out = nl.ndarray((height, width), dtype=nl.float32, buffer=nl.shared_hbm)
    # Every partition needs the gains: one transfer reads their row 128 times.
    gain = nl.ndarray((128, width), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=gain, src=g.ap(pattern=[[0, 128], [1, width]], offset=0))
    for row in nl.affine_range(height // 128):
        x_tile = nl.ndarray((128, depth), dtype=nl.float32, buffer=nl.sbuf)
        x_t = nl.ndarray((128, depth // 128, 128), dtype=nl.float32, buffer=nl.sbuf)
        z_tile = nl.ndarray((128, width), dtype=nl.float32, buffer=nl.sbuf)
        y_tile = nl.ndarray((128, width), dtype=nl.float32, buffer=nl.sbuf)
        square = nl.ndarray((128, width), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        shifted = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        inverse = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        scaled = nl.ndarray((128, width), dtype=nl.float32, buffer=nl.sbuf)
        out_tile = nl.ndarray((128, width), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_tile, src=x[nl.ds(128 * row, 128), 0:depth])
        nisa.dma_copy(dst=z_tile, src=z[nl.ds(128 * row, 128), 0:width])
        for k in nl.affine_range(depth // 128):
            turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_transpose(dst=turned, data=x_tile[0:128, nl.ds(128 * k, 128)])
            nisa.tensor_copy(dst=x_t[0:128, k, 0:128], src=turned)
        for column in nl.affine_range(width // 512):
            product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(depth // 128):
                w_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
                nisa.dma_copy(dst=w_tile, src=w[nl.ds(128 * k, 128), nl.ds(512 * column, 512)])
                nisa.nc_matmul(dst=product, stationary=x_t[0:128, k, 0:128], moving=w_tile, accumulate=k > 0)
            nisa.tensor_tensor(
                dst=y_tile[0:128, nl.ds(512 * column, 512)],
                data1=product,
                data2=z_tile[0:128, nl.ds(512 * column, 512)],
                op=nl.add,
            )
        nisa.activation(dst=square, op=nl.square, data=y_tile)
        nisa.tensor_reduce(dst=total, op=nl.add, data=square, axis=1)
        nisa.tensor_scalar(dst=shifted, data=total, op0=nl.multiply, operand0=1.0 / width, op1=nl.add, operand1=eps)
        nisa.activation(dst=inverse, op=nl.rsqrt, data=shifted)
        nisa.tensor_scalar(dst=scaled, data=y_tile, op0=nl.multiply, operand0=inverse)
        nisa.tensor_tensor(dst=out_tile, data1=scaled, data2=gain, op=nl.multiply)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), 0:width], src=out_tile)
    return out
