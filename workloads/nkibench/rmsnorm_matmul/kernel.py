"""RMS normalization of whole rows, then 128 x 512 tiles of the product; weights are loaded for every row tile."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, w):
    out = nl.ndarray((32, 128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in nl.affine_range(32):
        x_tile = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
        square = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        inverse = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        normed = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
        normed_t = nl.ndarray((128, 8, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_tile, src=x[row, 0:128, 0:1024])
        nisa.activation(dst=square, op=nl.square, data=x_tile)
        nisa.tensor_reduce(dst=total, op=nl.add, data=square, axis=1)
        nisa.activation(dst=inverse, op=nl.rsqrt, data=total, scale=1.0 / 1024)
        nisa.tensor_scalar(dst=normed, data=x_tile, op0=nl.multiply, operand0=inverse)
        for k in nl.affine_range(8):
            turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_transpose(dst=turned, data=normed[0:128, nl.ds(128 * k, 128)])
            nisa.tensor_copy(dst=normed_t[0:128, k, 0:128], src=turned)
        for column in nl.affine_range(4):
            product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            out_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            for k in nl.affine_range(8):
                w_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
                nisa.dma_copy(dst=w_tile, src=w[k, 0:128, nl.ds(512 * column, 512)])
                nisa.nc_matmul(dst=product, stationary=normed_t[0:128, k, 0:128], moving=w_tile, accumulate=k > 0)
            nisa.tensor_copy(dst=out_tile, src=product)
            nisa.dma_copy(dst=out[row, 0:128, nl.ds(512 * column, 512)], src=out_tile)
    return out
