"""Rotary embedding, 256 positions at a time; each half of the head has its own products."""

import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, cos, sin):
    out = nl.ndarray((128, 262144), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    h = nl.arange(64)[:, None]
    f = nl.arange(256)[None, :]
    for tile in nl.affine_range(1024):
        x_tile = nl.ndarray((nl.par_dim(128), 256), dtype=nl.float32, buffer=nl.sbuf)
        out_tile = nl.ndarray((nl.par_dim(128), 256), dtype=nl.float32, buffer=nl.sbuf)
        x_tile[p, f] = nl.load(x[p, 256 * tile + f])
        cos_tile = nl.load(cos[h, 256 * tile + f])
        sin_tile = nl.load(sin[h, 256 * tile + f])
        # Both operands of a product must start at the same partition.
        lower = nl.copy(x_tile[64 + h, f])
        upper_cos = nisa.tensor_tensor(x_tile[h, f], cos_tile, op=nl.multiply)
        lower_sin = nisa.tensor_tensor(lower, sin_tile, op=nl.multiply)
        upper_sin = nisa.tensor_tensor(x_tile[h, f], sin_tile, op=nl.multiply)
        lower_cos = nisa.tensor_tensor(lower, cos_tile, op=nl.multiply)
        out_tile[h, f] = nisa.tensor_tensor(upper_cos, lower_sin, op=nl.subtract)
        out_tile[64 + h, f] = nisa.tensor_tensor(upper_sin, lower_cos, op=nl.add)
        nl.store(out[p, 256 * tile + f], value=out_tile[p, f])
    return out
