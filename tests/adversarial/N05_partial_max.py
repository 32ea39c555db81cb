# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_product_softmax
"""Softmax of a product with the maximum of the first 128 columns."""

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
    negative = nisa.tensor_reduce(nl.max, data=logits[p, nl.arange(128)[None, :]], axis=[1], negate=True)
    weight = nisa.activation(op=nl.exp, data=logits, bias=negative)
    inverse = nisa.reciprocal(data=nisa.tensor_reduce(nl.add, data=weight, axis=[1]))
    result = nisa.tensor_scalar(data=weight, op0=nl.multiply, operand0=inverse)
    nl.store(out[p, f], value=result)
    return out
