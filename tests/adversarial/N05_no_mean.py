# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_layernorm
"""Layer normalization that takes the mean for zero."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    tile = nl.load(x[p, f])
    square = nisa.activation(op=nl.square, data=tile)
    total = nisa.tensor_reduce(nl.add, data=square, axis=[1])
    variance = nisa.tensor_scalar(data=total, op0=nl.multiply, operand0=1.0 / 512, op1=nl.add, operand1=1e-5)
    inverse = nisa.activation(op=nl.rsqrt, data=variance)
    nl.store(out[p, f], value=nisa.tensor_scalar(data=tile, op0=nl.multiply, operand0=inverse))
    return out
