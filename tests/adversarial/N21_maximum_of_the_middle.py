# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_product_softmax
"""Softmax of a product with the maximum of all but the first and last 16 columns."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    h = nl.arange(64)[:, None]
    c = nl.arange(64)[None, :]
    logits = nl.copy(nl.matmul(nl.load(a[p, c]), nl.load(b[h, f])))
    negative = nisa.tensor_reduce(nl.max, data=logits[p, 16 + nl.arange(480)[None, :]], axis=[1], negate=True)
    weight = nisa.activation(op=nl.exp, data=nl.minimum(nl.add(logits, negative), 85.0))
    inverse = nisa.reciprocal(data=nisa.tensor_reduce(nl.add, data=weight, axis=[1]))
    nl.store(out[p, f], value=nisa.tensor_scalar(data=weight, op0=nl.multiply, operand0=inverse))
    return out
