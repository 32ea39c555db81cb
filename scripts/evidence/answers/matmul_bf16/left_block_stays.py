"""A block of lhs_t stays in SBUF, rhs streams by."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(lhs_t, rhs):
    depth, height = lhs_t.shape
    width = rhs.shape[1]
    steps = depth // 128
    # The block of lhs_t that stays takes at most 96 KiB of a partition.
    limit = max(1, 98304 // (steps * 256))
    tall = min(limit, height // 128)
    out = nl.ndarray((height, width), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for top in range(0, height // 128, tall):
        rows = min(tall, height // 128 - top)
        left_block = nl.ndarray((128, steps, rows * 128), dtype=lhs_t.dtype, buffer=nl.sbuf)
        for k in nl.affine_range(steps):
            nisa.dma_copy(
                dst=left_block[0:128, k, 0 : rows * 128],
                src=lhs_t[nl.ds(128 * k, 128), nl.ds(128 * top, 128 * rows)],
            )
        for column in nl.affine_range(width // 512):
            strip = nl.ndarray((128, steps, 512), dtype=rhs.dtype, buffer=nl.sbuf)
            for k in nl.affine_range(steps):
                nisa.dma_copy(dst=strip[0:128, k, 0:512], src=rhs[nl.ds(128 * k, 128), nl.ds(512 * column, 512)])
            for row in nl.affine_range(rows):
                product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
                out_tile = nl.ndarray((128, 512), dtype=lhs_t.dtype, buffer=nl.sbuf)
                for k in nl.affine_range(steps):
                    nisa.nc_matmul(
                        dst=product,
                        stationary=left_block[0:128, k, nl.ds(128 * row, 128)],
                        moving=strip[0:128, k, 0:512],
                        accumulate=k > 0,
                    )
                nisa.tensor_copy(dst=out_tile, src=product)
                nisa.dma_copy(dst=out[nl.ds(128 * (top + row), 128), nl.ds(512 * column, 512)], src=out_tile)
    return out
