"""128 x 512 tiles of the product, 512 rows of the contraction a step; each tile is rounded to MXFP8 where it is used."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(lhs_t, rhs):
    depth = lhs_t.shape[0]
    height, width = lhs_t.shape[1] // 4, rhs.shape[1] // 4
    out = nl.ndarray((height, width), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    for row in nl.affine_range(height // 128):
        for column in nl.affine_range(width // 512):
            product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            out_tile = nl.ndarray((128, 512), dtype=nl.bfloat16, buffer=nl.sbuf)
            for k in nl.affine_range(depth // 128):
                lhs_tile = nl.ndarray((128, 512), dtype=nl.bfloat16, buffer=nl.sbuf)
                rhs_tile = nl.ndarray((128, 2048), dtype=nl.bfloat16, buffer=nl.sbuf)
                lhs_mx = nl.ndarray((128, 128), dtype=nl.float8_e4m3fn_x4, buffer=nl.sbuf)
                rhs_mx = nl.ndarray((128, 512), dtype=nl.float8_e4m3fn_x4, buffer=nl.sbuf)
                lhs_scale = nl.ndarray((128, 128), dtype=nl.uint8, buffer=nl.sbuf)
                rhs_scale = nl.ndarray((128, 512), dtype=nl.uint8, buffer=nl.sbuf)
                nisa.dma_copy(dst=lhs_tile, src=lhs_t[nl.ds(128 * k, 128), nl.ds(512 * row, 512)])
                nisa.dma_copy(dst=rhs_tile, src=rhs[nl.ds(128 * k, 128), nl.ds(2048 * column, 2048)])
                nisa.quantize_mx(dst=lhs_mx, src=lhs_tile, dst_scale=lhs_scale)
                nisa.quantize_mx(dst=rhs_mx, src=rhs_tile, dst_scale=rhs_scale)
                nisa.nc_matmul_mx(
                    dst=product,
                    stationary=lhs_mx,
                    moving=rhs_mx,
                    stationary_scale=lhs_scale,
                    moving_scale=rhs_scale,
                    accumulate=k > 0,
                )
            nisa.tensor_copy(dst=out_tile, src=product)
            nisa.dma_copy(dst=out[nl.ds(128 * row, 128), nl.ds(512 * column, 512)], src=out_tile)
    return out
