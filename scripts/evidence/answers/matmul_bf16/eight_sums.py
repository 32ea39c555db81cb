"""Eight sums in PSUM for each step, 4 rows by 2 columns."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(lhs_t, rhs):
    depth, height = lhs_t.shape
    width = rhs.shape[1]
    steps = depth // 128
    tall = min(4, height // 128)
    broad = min(2, width // 512)
    out = nl.ndarray((height, width), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for top in range(0, height // 128, tall):
        rows = min(tall, height // 128 - top)
        for left in range(0, width // 512, broad):
            columns = min(broad, width // 512 - left)
            sums = nl.ndarray((128, rows, columns, 512), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(steps):
                lhs_tile = nl.ndarray((128, rows * 128), dtype=lhs_t.dtype, buffer=nl.sbuf)
                rhs_tile = nl.ndarray((128, columns * 512), dtype=rhs.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=lhs_tile, src=lhs_t[nl.ds(128 * k, 128), nl.ds(128 * top, 128 * rows)])
                nisa.dma_copy(dst=rhs_tile, src=rhs[nl.ds(128 * k, 128), nl.ds(512 * left, 512 * columns)])
                for row in nl.affine_range(rows):
                    for column in nl.affine_range(columns):
                        nisa.nc_matmul(
                            dst=sums[0:128, row, column, 0:512],
                            stationary=lhs_tile[0:128, nl.ds(128 * row, 128)],
                            moving=rhs_tile[0:128, nl.ds(512 * column, 512)],
                            accumulate=k > 0,
                        )
            for row in nl.affine_range(rows):
                out_tile = nl.ndarray((128, columns * 512), dtype=lhs_t.dtype, buffer=nl.sbuf)
                for column in nl.affine_range(columns):
                    nisa.tensor_copy(dst=out_tile[0:128, nl.ds(512 * column, 512)], src=sums[0:128, row, column, 0:512])
                nisa.dma_copy(dst=out[nl.ds(128 * (top + row), 128), nl.ds(512 * left, 512 * columns)], src=out_tile)
    return out
