"""Columns outside, rhs strip stays in SBUF."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(lhs_t, rhs):
    depth, height = lhs_t.shape
    width = rhs.shape[1]
    steps = depth // 128
    out = nl.ndarray((height, width), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for column in nl.affine_range(width // 512):
        strip = nl.ndarray((128, steps, 512), dtype=rhs.dtype, buffer=nl.sbuf)
        for k in nl.affine_range(steps):
            nisa.dma_copy(dst=strip[0:128, k, 0:512], src=rhs[nl.ds(128 * k, 128), nl.ds(512 * column, 512)])
        for row in nl.affine_range(height // 128):
            product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            out_tile = nl.ndarray((128, 512), dtype=lhs_t.dtype, buffer=nl.sbuf)
            for k in nl.affine_range(steps):
                lhs_tile = nl.ndarray((128, 128), dtype=lhs_t.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=lhs_tile, src=lhs_t[nl.ds(128 * k, 128), nl.ds(128 * row, 128)])
                nisa.nc_matmul(dst=product, stationary=lhs_tile, moving=strip[0:128, k, 0:512], accumulate=k > 0)
            nisa.tensor_copy(dst=out_tile, src=product)
            nisa.dma_copy(dst=out[nl.ds(128 * row, 128), nl.ds(512 * column, 512)], src=out_tile)
    return out
