# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_layernorm
"""Layer normalization without its epsilon."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    tile = nl.load(x[p, f])
    mean = nl.multiply(nisa.tensor_reduce(nl.add, data=tile, axis=[1]), 1.0 / 512)
    centered = nisa.tensor_scalar(data=tile, op0=nl.subtract, operand0=mean)
    total = nisa.tensor_reduce(nl.add, data=nisa.activation(op=nl.square, data=centered), axis=[1])
    inverse = nisa.activation(op=nl.rsqrt, data=nl.multiply(total, 1.0 / 512))
    nl.store(out[p, f], value=nisa.tensor_scalar(data=centered, op0=nl.multiply, operand0=inverse))
    return out
