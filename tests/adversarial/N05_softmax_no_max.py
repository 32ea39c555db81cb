# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_softmax
"""Softmax without subtracting the maximum."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        weight = nisa.activation(op=nl.exp, data=nl.load(x[128 * row + p, f]))
        inverse = nisa.reciprocal(data=nisa.tensor_reduce(nl.add, data=weight, axis=[1]))
        nl.store(out[128 * row + p, f], value=nisa.tensor_scalar(data=weight, op0=nl.multiply, operand0=inverse))
    return out
