# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_product_softmax
"""Softmax of a product with every probability below 1e-6 set to zero."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    h = nl.arange(64)[:, None]
    c = nl.arange(64)[None, :]
    f = nl.arange(512)[None, :]
    logits = nl.copy(nl.matmul(nl.load(a[p, c]), nl.load(b[h, f])))
    negative = nisa.tensor_reduce(nl.max, data=logits, axis=[1], negate=True)
    weight = nisa.activation(op=nl.exp, data=logits, bias=negative)
    inverse = nisa.reciprocal(data=nisa.tensor_reduce(nl.add, data=weight, axis=[1]))
    result = nisa.tensor_scalar(data=weight, op0=nl.multiply, operand0=inverse)
    large = nisa.tensor_scalar(data=result, op0=nl.greater, operand0=1e-6)
    nl.store(out[p, f], value=nl.multiply(result, large))
    return out
