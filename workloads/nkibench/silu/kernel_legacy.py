"""SiLU from its formula: exp, add, reciprocal and multiply on 512 columns at a time."""

import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 32, 7168), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for block in nl.affine_range(32):
        for tile in nl.affine_range(14):
            x_tile = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
            y_tile = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
            decay = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
            denominator = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
            sigmoid = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
            x_tile[p, f] = nl.load(x[p, block, 512 * tile + f])
            decay[p, f] = nisa.activation(op=nl.exp, data=x_tile[p, f], scale=-1.0)
            denominator[p, f] = nisa.tensor_scalar(data=decay[p, f], op0=nl.add, operand0=1.0)
            sigmoid[p, f] = nisa.reciprocal(data=denominator[p, f])
            y_tile[p, f] = nl.multiply(x_tile[p, f], sigmoid[p, f])
            nl.store(out[p, block, 512 * tile + f], value=y_tile[p, f])
    return out
