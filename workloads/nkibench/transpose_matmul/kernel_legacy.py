"""Product of a transposed operand, two row tiles at a time; the last of 22 column tiles is masked (10944 = 21.375 x 512)."""

import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    out = nl.ndarray((32, 128, 10944), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    lhs_tile = nl.ndarray((16, 2, 16, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    rhs_tile = nl.ndarray((16, 22, 16, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    product = nl.zeros((16, 22, 2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum, lazy_initialization=True)
    out_tile = nl.ndarray((16, 22, 2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    for pair in nl.affine_range(16):
        for row in nl.affine_range(2):
            for k in nl.affine_range(16):
                lhs_tile[pair, row, k, p, c] = nl.load(lhs[p, k, 256 * pair + 128 * row + c])
        for column in nl.affine_range(22):
            for k in nl.affine_range(16):
                rhs_tile[pair, column, k, p, f] = nl.load(rhs[p, k, 512 * column + f], mask=512 * column + f < 10944)
            for row in nl.affine_range(2):
                for k in nl.affine_range(16):
                    product[pair, column, row, p, f] += nisa.nc_matmul(
                        lhs_tile[pair, row, k, p, c], rhs_tile[pair, column, k, p, f], mask=512 * column + f < 10944
                    )
                out_tile[pair, column, row, p, f] = nl.copy(
                    product[pair, column, row, p, f], mask=512 * column + f < 10944
                )
                nl.store(
                    out[2 * pair + row, p, 512 * column + f],
                    value=out_tile[pair, column, row, p, f],
                    mask=512 * column + f < 10944,
                )
    return out
