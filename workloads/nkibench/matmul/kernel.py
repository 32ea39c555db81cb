"""Matrix product by blocks of 512 columns; a block of the right operand is kept, rows are transposed as they come."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    out = nl.ndarray((32, 128, 12288), dtype=nl.float32, buffer=nl.shared_hbm)
    for block in nl.affine_range(24):
        rhs_tile = nl.ndarray((128, 40, 512), dtype=nl.float32, buffer=nl.sbuf)
        for k in nl.affine_range(40):
            nisa.dma_copy(dst=rhs_tile[0:128, k, 0:512], src=rhs[k, 0:128, nl.ds(512 * block, 512)])
        for row in nl.affine_range(32):
            lhs_tile = nl.ndarray((128, 40, 128), dtype=nl.float32, buffer=nl.sbuf)
            product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            out_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=lhs_tile, src=lhs[row, 0:128, 0:40, 0:128])
            for k in nl.affine_range(40):
                turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
                lhs_t = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
                nisa.nc_transpose(dst=turned, data=lhs_tile[0:128, k, 0:128])
                nisa.tensor_copy(dst=lhs_t, src=turned)
                nisa.nc_matmul(dst=product, stationary=lhs_t, moving=rhs_tile[0:128, k, 0:512], accumulate=k > 0)
            nisa.tensor_copy(dst=out_tile, src=product)
            nisa.dma_copy(dst=out[row, 0:128, nl.ds(512 * block, 512)], src=out_tile)
    return out
