"""Product of a transposed operand by blocks of 512 columns; the last of 22 is 192 wide (10944 = 21.375 x 512)."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    width = rhs.shape[2]
    out = nl.ndarray((32, 128, width), dtype=nl.float32, buffer=nl.shared_hbm)
    for column in nl.affine_range((width + 511) // 512):
        columns = min(512, width - 512 * column)
        rhs_tile = nl.ndarray((128, 16, columns), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=rhs_tile, src=rhs[0:128, 0:16, nl.ds(512 * column, columns)])
        for row in nl.affine_range(32):
            lhs_tile = nl.ndarray((128, 16, 128), dtype=nl.float32, buffer=nl.sbuf)
            product = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.psum)
            out_tile = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=lhs_tile, src=lhs[0:128, 0:16, nl.ds(128 * row, 128)])
            for k in nl.affine_range(16):
                nisa.nc_matmul(
                    dst=product,
                    stationary=lhs_tile[0:128, k, 0:128],
                    moving=rhs_tile[0:128, k, 0:columns],
                    accumulate=k > 0,
                )
            nisa.tensor_copy(dst=out_tile, src=product)
            nisa.dma_copy(dst=out[row, 0:128, nl.ds(512 * column, columns)], src=out_tile)
    return out
