"""Low-rank part of all rows first; then blocks of 512 columns, whose last product adds the correction in PSUM."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, w, a, b):
    out = nl.ndarray((8, 4, 128, 96, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    # low_t is (x @ a) transposed: it is the stationary operand of the correction.
    a_tile = nl.ndarray((128, 40, 128), dtype=nl.float32, buffer=nl.sbuf)
    low_t = nl.ndarray((128, 32, 128), dtype=nl.float32, buffer=nl.sbuf)
    for k in nl.affine_range(40):
        nisa.dma_copy(dst=a_tile[0:128, k, 0:128], src=a[k, 0:128, 0:128])
    for row in nl.affine_range(32):
        x_tile = nl.ndarray((128, 40, 128), dtype=nl.float32, buffer=nl.sbuf)
        low = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
        nisa.dma_copy(dst=x_tile, src=x[row // 4, row % 4, 0:128, 0:40, 0:128])
        for k in nl.affine_range(40):
            turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
            x_t = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
            nisa.nc_transpose(dst=turned, data=x_tile[0:128, k, 0:128])
            nisa.tensor_copy(dst=x_t, src=turned)
            nisa.nc_matmul(dst=low, stationary=a_tile[0:128, k, 0:128], moving=x_t, accumulate=k > 0)
        nisa.tensor_copy(dst=low_t[0:128, row, 0:128], src=low)
    for block in nl.affine_range(24):
        w_tile = nl.ndarray((128, 40, 512), dtype=nl.float32, buffer=nl.sbuf)
        b_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=b_tile, src=b[0:128, nl.ds(512 * block, 512)])
        for k in nl.affine_range(40):
            nisa.dma_copy(dst=w_tile[0:128, k, 0:512], src=w[k, 0:128, nl.ds(512 * block, 512)])
        for row in nl.affine_range(32):
            x_again = nl.ndarray((128, 40, 128), dtype=nl.float32, buffer=nl.sbuf)
            product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            out_tile = nl.ndarray((128, 4, 128), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=x_again, src=x[row // 4, row % 4, 0:128, 0:40, 0:128])
            for k in nl.affine_range(40):
                again_turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
                again_t = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
                nisa.nc_transpose(dst=again_turned, data=x_again[0:128, k, 0:128])
                nisa.tensor_copy(dst=again_t, src=again_turned)
                nisa.nc_matmul(dst=product, stationary=again_t, moving=w_tile[0:128, k, 0:512], accumulate=k > 0)
            nisa.nc_matmul(dst=product, stationary=low_t[0:128, row, 0:128], moving=b_tile, accumulate=True)
            nisa.tensor_copy(dst=out_tile, src=product)
            nisa.dma_copy(dst=out[row // 4, row % 4, 0:128, nl.ds(4 * block, 4), 0:128], src=out_tile)
    return out
