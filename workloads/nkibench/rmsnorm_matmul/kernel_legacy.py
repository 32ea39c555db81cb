"""RMS normalization in chunks of 512 columns, then 128 x 512 tiles of the product."""

import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, w):
    out = nl.ndarray((32, 128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    wide = nl.arange(1024)[None, :]
    f = nl.arange(512)[None, :]
    c = nl.arange(128)[None, :]
    one = nl.arange(1)[None, :]
    for row in nl.affine_range(32):
        x_tile = nl.ndarray((nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
        normed = nl.ndarray((nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
        square = nl.ndarray((nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
        scaled = nl.ndarray((nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
        part = nl.ndarray((nl.par_dim(128), 2), dtype=nl.float32, buffer=nl.sbuf)
        x_tile[p, wide] = nl.load(x[row, p, wide])
        for chunk in nl.affine_range(2):
            square[p, 512 * chunk + f] = nisa.activation(op=nl.square, data=x_tile[p, 512 * chunk + f])
            scaled[p, 512 * chunk + f] = nisa.tensor_scalar(
                data=square[p, 512 * chunk + f], op0=nl.multiply, operand0=1.0 / 1024
            )
            part[p, chunk + one] = nisa.tensor_reduce(nl.add, data=scaled[p, 512 * chunk + f], axis=[1])
        mean = nisa.tensor_reduce(nl.add, data=part[p, nl.arange(2)[None, :]], axis=[1])
        inverse = nisa.activation(op=nl.rsqrt, data=mean)
        for chunk in nl.affine_range(2):
            normed[p, 512 * chunk + f] = nisa.tensor_scalar(
                data=x_tile[p, 512 * chunk + f], op0=nl.multiply, operand0=inverse
            )
        for column in nl.affine_range(4):
            product = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(8):
                w_tile = nl.load(w[k, p, 512 * column + f])
                product += nl.matmul(normed[p, 128 * k + c], w_tile)
            out_tile = nl.copy(product)
            nl.store(out[row, p, 512 * column + f], value=out_tile)
    return out
