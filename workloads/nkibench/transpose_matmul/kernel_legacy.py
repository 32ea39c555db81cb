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
    for pair in nl.affine_range(16):
        lhs_tile = nl.ndarray((nl.par_dim(128), 2, 16, 128), dtype=nl.float32, buffer=nl.sbuf)
        for row in nl.affine_range(2):
            for k in nl.affine_range(16):
                lhs_tile[p, row, k, c] = nl.load(lhs[p, k, 256 * pair + 128 * row + c])
        for column in nl.affine_range(22):
            rhs_tile = nl.ndarray((nl.par_dim(128), 16, 512), dtype=nl.float32, buffer=nl.sbuf)
            for k in nl.affine_range(16):
                rhs_tile[p, k, f] = nl.load(rhs[p, k, 512 * column + f], mask=512 * column + f < 10944)
            for row in nl.affine_range(2):
                product = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
                out_tile = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
                for k in nl.affine_range(16):
                    product[p, f] += nisa.nc_matmul(
                        lhs_tile[p, row, k, c], rhs_tile[p, k, f], mask=512 * column + f < 10944
                    )
                out_tile[p, f] = nl.copy(product[p, f], mask=512 * column + f < 10944)
                nl.store(
                    out[2 * pair + row, p, 512 * column + f],
                    value=out_tile[p, f],
                    mask=512 * column + f < 10944,
                )
    return out
