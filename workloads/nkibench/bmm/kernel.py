"""Batched product in 128 x 512 tiles, the right operand of a batch kept; the contraction of 64 fills half of the array."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    out = nl.ndarray((16, 32, 128, 4096), dtype=nl.float32, buffer=nl.shared_hbm)
    for batch in nl.affine_range(16):
        rhs_tile = nl.ndarray((64, 4096), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=rhs_tile, src=rhs[batch, 0:64, 0:4096])
        for row in nl.affine_range(32):
            lhs_tile = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
            turned = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.psum)
            lhs_t = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=lhs_tile, src=lhs[batch, nl.ds(128 * row, 128), 0:64])
            nisa.nc_transpose(dst=turned, data=lhs_tile)
            nisa.tensor_copy(dst=lhs_t, src=turned)
            # A store of 2048 columns is long enough to use the DMA engines well; one of 512 is not.
            for half in nl.affine_range(2):
                out_tile = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.sbuf)
                for part in nl.affine_range(4):
                    product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
                    nisa.nc_matmul(
                        dst=product, stationary=lhs_t, moving=rhs_tile[0:64, nl.ds(2048 * half + 512 * part, 512)]
                    )
                    nisa.tensor_copy(dst=out_tile[0:128, nl.ds(512 * part, 512)], src=product)
                nisa.dma_copy(dst=out[batch, row, 0:128, nl.ds(2048 * half, 2048)], src=out_tile)
    return out
