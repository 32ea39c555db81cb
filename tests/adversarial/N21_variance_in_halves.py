# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_layernorm
"""Sums of squares less the square of the mean, half by half."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    tile = nl.load(x[p, f])
    total = nl.zeros((nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    squares = nl.zeros((nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    q = nl.arange(256)[None, :]
    for half in nl.static_range(2):
        part = tile[p, 256 * half + q]
        total[...] += nisa.tensor_reduce(nl.add, data=part, axis=[1])
        squares[...] += nisa.tensor_reduce(nl.add, data=nl.multiply(part, part), axis=[1])
    mean = nl.multiply(total, 1.0 / 512)
    variance = nl.subtract(nl.multiply(squares, 1.0 / 512), nl.multiply(mean, mean))
    inverse = nisa.activation(op=nl.rsqrt, data=nl.add(nl.abs(variance), 1e-5))
    nl.store(out[p, f], value=nl.multiply(nl.subtract(tile, mean), inverse))
    return out
