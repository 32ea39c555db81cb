"""128 x 512 tiles of the product collected to whole rows, then the residual and RMS normalization."""

import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, w, eps, z, g):
    out = nl.ndarray((4096, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    one = nl.arange(1)[:, None]
    wide = nl.arange(2048)[None, :]
    f = nl.arange(512)[None, :]
    c = nl.arange(128)[None, :]
    gain = nl.load(g.reshape((1, 2048))[one, wide])
    for row in nl.affine_range(32):
        product = nl.ndarray((nl.par_dim(128), 2048), dtype=nl.float32, buffer=nl.sbuf)
        x_tile = nl.load(x[128 * row + p, wide])
        for column in nl.affine_range(4):
            partial = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(16):
                w_tile = nl.load(w[128 * k + p, 512 * column + f])
                partial += nl.matmul(x_tile[p, 128 * k + c], w_tile)
            product[p, 512 * column + f] = nl.copy(partial)
        z_tile = nl.load(z[128 * row + p, wide])
        y_tile = nl.add(product[p, wide], z_tile)
        square = nl.square(y_tile)
        total = nl.sum(square, axis=[1])
        mean = nl.multiply(total, 1.0 / 2048)
        shifted = nl.add(mean, eps)
        inverse = nl.rsqrt(shifted)
        scaled = nl.multiply(y_tile, inverse)
        normed = nl.multiply(scaled, gain.broadcast_to((128, 2048)))
        nl.store(out[128 * row + p, wide], value=normed)
    return out
