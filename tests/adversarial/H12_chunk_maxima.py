# expect: pass
# workload: st_softmax
"""Softmax whose maximum comes from the maxima of two halves."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    h = nl.arange(256)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        first = nisa.tensor_reduce(nl.max, data=tile[p, h], axis=[1])
        second = nisa.tensor_reduce(nl.max, data=tile[p, 256 + h], axis=[1])
        negative = nl.multiply(nl.maximum(first, second), -1.0)
        weight = nisa.activation(op=nl.exp, data=tile, bias=negative)
        left = nisa.tensor_reduce(nl.add, data=weight[p, h], axis=[1])
        right = nisa.tensor_reduce(nl.add, data=weight[p, 256 + h], axis=[1])
        inverse = nisa.reciprocal(data=nl.add(left, right))
        nl.store(out[128 * row + p, f], value=nisa.tensor_scalar(data=weight, op0=nl.multiply, operand0=inverse))
    return out
