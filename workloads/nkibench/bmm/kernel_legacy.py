"""Batched product in 128 x 512 tiles, the right operand of a batch kept; the contraction of 64 fills half of the array."""

import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    out = nl.ndarray((16, 32, 128, 4096), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    h = nl.arange(64)[:, None]
    c = nl.arange(64)[None, :]
    f = nl.arange(512)[None, :]
    wide = nl.arange(2048)[None, :]
    for batch in nl.affine_range(16):
        rhs_tiles = nl.ndarray((nl.par_dim(64), 4096), dtype=nl.float32, buffer=nl.sbuf)
        for tile in nl.affine_range(8):
            rhs_tiles[h, 512 * tile + f] = nl.load(rhs[batch, h, 512 * tile + f])
        for row in nl.affine_range(32):
            lhs_tile = nl.load(lhs[batch, 128 * row + p, c])
            for column in nl.affine_range(2):
                out_tile = nl.ndarray((nl.par_dim(128), 2048), dtype=nl.float32, buffer=nl.sbuf)
                for part in nl.affine_range(4):
                    product = nl.matmul(lhs_tile, rhs_tiles[h, 2048 * column + 512 * part + f])
                    out_tile[p, 512 * part + f] = nl.copy(product)
                nl.store(out[batch, row, p, 2048 * column + wide], value=out_tile[p, wide])
    return out
