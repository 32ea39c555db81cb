# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_softmax
"""Softmax that subtracts a constant instead of the maximum."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        tile = nisa.tensor_scalar(data=nl.load(x[128 * row + p, f]), op0=nl.subtract, operand0=12.0)
        weight = nisa.activation(op=nl.exp, data=tile)
        inverse = nisa.reciprocal(data=nisa.tensor_reduce(nl.add, data=weight, axis=[1]))
        nl.store(out[128 * row + p, f], value=nisa.tensor_scalar(data=weight, op0=nl.multiply, operand0=inverse))
    return out
