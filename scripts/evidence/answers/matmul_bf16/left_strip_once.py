"""Load the strip of lhs once a row."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(lhs_t, rhs):
    depth, height = lhs_t.shape
    width = rhs.shape[1]
    steps = depth // 128
    out = nl.ndarray((height, width), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for row in nl.affine_range(height // 128):
        strip = nl.ndarray((128, steps, 128), dtype=lhs_t.dtype, buffer=nl.sbuf)
        for k in nl.affine_range(steps):
            nisa.dma_copy(dst=strip[0:128, k, 0:128], src=lhs_t[nl.ds(128 * k, 128), nl.ds(128 * row, 128)])
        for column in nl.affine_range(width // 512):
            product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            out_tile = nl.ndarray((128, 512), dtype=lhs_t.dtype, buffer=nl.sbuf)
            for k in nl.affine_range(steps):
                rhs_tile = nl.ndarray((128, 512), dtype=rhs.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=rhs_tile, src=rhs[nl.ds(128 * k, 128), nl.ds(512 * column, 512)])
                nisa.nc_matmul(dst=product, stationary=strip[0:128, k, 0:128], moving=rhs_tile, accumulate=k > 0)
            nisa.tensor_copy(dst=out_tile, src=product)
            nisa.dma_copy(dst=out[nl.ds(128 * row, 128), nl.ds(512 * column, 512)], src=out_tile)
    return out
