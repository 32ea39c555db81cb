# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_rmsnorm
"""RMS normalization without its epsilon: 5e-6 of the result."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, g):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    gain = nl.load(g.reshape((1, 512))[nl.arange(1)[:, None], f])
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        total = nisa.tensor_reduce(nl.add, data=nisa.activation(op=nl.square, data=tile), axis=[1])
        inverse = nisa.activation(op=nl.rsqrt, data=nl.multiply(total, 1.0 / 512))
        normed = nisa.tensor_scalar(data=tile, op0=nl.multiply, operand0=inverse)
        nl.store(out[128 * row + p, f], value=nl.multiply(normed, gain.broadcast_to((128, 512))))
    return out
