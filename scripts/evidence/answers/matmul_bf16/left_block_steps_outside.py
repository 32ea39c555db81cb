"""Blocks stay and the step loop is outside for 8 rows."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(lhs_t, rhs):
    depth, height = lhs_t.shape
    width = rhs.shape[1]
    steps = depth // 128
    limit = max(1, 98304 // (steps * 256))
    tall = min(limit, height // 128)
    out = nl.ndarray((height, width), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for top in range(0, height // 128, tall):
        rows = min(tall, height // 128 - top)
        left_block = nl.ndarray((128, steps, rows * 128), dtype=lhs_t.dtype, buffer=nl.sbuf)
        for column in range(width // 512):
            strip = nl.ndarray((128, steps, 512), dtype=rhs.dtype, buffer=nl.sbuf)
            for k in range(steps):
                if column == 0:
                    nisa.dma_copy(
                        dst=left_block[0:128, k, 0 : rows * 128],
                        src=lhs_t[nl.ds(128 * k, 128), nl.ds(128 * top, 128 * rows)],
                    )
                nisa.dma_copy(dst=strip[0:128, k, 0:512], src=rhs[nl.ds(128 * k, 128), nl.ds(512 * column, 512)])
            for first in range(0, rows, 4):
                some = min(4, rows - first)
                sums = nl.ndarray((128, some, 512), dtype=nl.float32, buffer=nl.psum)
                for k in range(steps):
                    for row in range(some):
                        nisa.nc_matmul(
                            dst=sums[0:128, row, 0:512],
                            stationary=left_block[0:128, k, nl.ds(128 * (first + row), 128)],
                            moving=strip[0:128, k, 0:512],
                            accumulate=k > 0,
                        )
                for row in range(some):
                    out_tile = nl.ndarray((128, 512), dtype=lhs_t.dtype, buffer=nl.sbuf)
                    nisa.tensor_copy(dst=out_tile, src=sums[0:128, row, 0:512])
                    nisa.dma_copy(
                        dst=out[nl.ds(128 * (top + first + row), 128), nl.ds(512 * column, 512)], src=out_tile
                    )
    return out
