"""SiLU from its formula: exp, add, reciprocal and multiply in chunks of 512 columns."""

import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 32, 7168), dtype=nl.float32, buffer=nl.shared_hbm)
    x_tile = nl.ndarray((32, 7, nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
    y_tile = nl.ndarray((32, 7, nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
    decay = nl.ndarray((32, 7, 2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    denominator = nl.ndarray((32, 7, 2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    sigmoid = nl.ndarray((32, 7, 2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    p = nl.arange(128)[:, None]
    wide = nl.arange(1024)[None, :]
    f = nl.arange(512)[None, :]
    for block in nl.affine_range(32):
        for tile in nl.affine_range(7):
            x_tile[block, tile, p, wide] = nl.load(x[p, block, 1024 * tile + wide])
            for chunk in nl.affine_range(2):
                decay[block, tile, chunk, p, f] = nisa.activation(
                    op=nl.exp, data=x_tile[block, tile, p, 512 * chunk + f], scale=-1.0
                )
                denominator[block, tile, chunk, p, f] = nisa.tensor_scalar(
                    data=decay[block, tile, chunk, p, f], op0=nl.add, operand0=1.0
                )
                sigmoid[block, tile, chunk, p, f] = nisa.reciprocal(data=denominator[block, tile, chunk, p, f])
                y_tile[block, tile, p, 512 * chunk + f] = nl.multiply(
                    x_tile[block, tile, p, 512 * chunk + f], sigmoid[block, tile, chunk, p, f]
                )
            nl.store(out[p, block, 1024 * tile + wide], value=y_tile[block, tile, p, wide])
    return out
