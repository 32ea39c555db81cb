"""RMS normalization of 128 rows at a time, float32 inside, an instruction for each operation."""

import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, g, eps):
    rows, width = x.shape
    out = nl.ndarray((rows, width), dtype=x.dtype, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    one = nl.arange(1)[:, None]
    f = nl.arange(width)[None, :]
    chunk = nl.arange(1024)[None, :]
    gain = nl.load(g.reshape((1, width))[one, f])
    gains = gain.broadcast_to((128, width))
    for row in nl.affine_range(rows // 128):
        x_tile = nl.load(x[128 * row + p, f])
        out_tile = nl.ndarray((nl.par_dim(128), width), dtype=x.dtype, buffer=nl.sbuf)
        square = nl.multiply(x_tile, x_tile, dtype=nl.float32)
        total = nl.sum(square, axis=[1])
        mean = nl.multiply(total, 1.0 / width)
        shifted = nl.add(mean, eps)
        inverse = nl.rsqrt(shifted)
        for part in nl.affine_range(width // 1024):
            scaled = nl.multiply(x_tile[p, 1024 * part + chunk], inverse, dtype=nl.float32)
            out_tile[p, 1024 * part + chunk] = nl.multiply(scaled, gains[p, 1024 * part + chunk], dtype=x.dtype)
        nl.store(out[128 * row + p, f], value=out_tile[p, f])
    return out
