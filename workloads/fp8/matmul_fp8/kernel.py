"""128 x 512 tiles of the product, 256 rows of the contraction a step: two 8-bit rows for each row of the array."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(lhs_t, rhs):
    depth, height = lhs_t.shape
    width = rhs.shape[1]
    out = nl.ndarray((height, width), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    for row in nl.affine_range(height // 128):
        for column in nl.affine_range(width // 512):
            product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            out_tile = nl.ndarray((128, 512), dtype=nl.bfloat16, buffer=nl.sbuf)
            for k in nl.affine_range(depth // 256):
                lhs_tile = nl.ndarray((128, 2, 128), dtype=lhs_t.dtype, buffer=nl.sbuf)
                rhs_tile = nl.ndarray((128, 2, 512), dtype=rhs.dtype, buffer=nl.sbuf)
                for half in nl.affine_range(2):
                    rows = nl.ds(256 * k + 128 * half, 128)
                    nisa.dma_copy(dst=lhs_tile[:, half, :], src=lhs_t[rows, nl.ds(128 * row, 128)])
                    nisa.dma_copy(dst=rhs_tile[:, half, :], src=rhs[rows, nl.ds(512 * column, 512)])
                nisa.nc_matmul(
                    dst=product,
                    stationary=lhs_tile,
                    moving=rhs_tile,
                    accumulate=k > 0,
                    perf_mode=nisa.matmul_perf_mode.double_row,
                )
            nisa.tensor_copy(dst=out_tile, src=product)
            nisa.dma_copy(dst=out[nl.ds(128 * row, 128), nl.ds(512 * column, 512)], src=out_tile)
    return out
