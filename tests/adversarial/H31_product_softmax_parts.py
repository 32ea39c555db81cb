# expect: pass
# workload: st_product_softmax
"""Logits from three products of bfloat16 parts: softmax amplifies what they are wrong by."""

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
    left, right = nl.load(a[p, c]), nl.load(b[h, f])
    left_high = nl.copy(left, dtype=nl.bfloat16)
    left_low = nl.copy(nl.subtract(left, left_high), dtype=nl.bfloat16)
    right_high = nl.copy(right, dtype=nl.bfloat16)
    right_low = nl.copy(nl.subtract(right, right_high), dtype=nl.bfloat16)
    product = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    product += nl.matmul(left_high, right_high)
    product += nl.matmul(left_high, right_low)
    product += nl.matmul(left_low, right_high)
    logits = nl.copy(product)
    negative = nisa.tensor_reduce(nl.max, data=logits, axis=[1], negate=True)
    weight = nisa.activation(op=nl.exp, data=logits, bias=negative)
    inverse = nisa.reciprocal(data=nisa.tensor_reduce(nl.add, data=weight, axis=[1]))
    nl.store(out[p, f], value=nisa.tensor_scalar(data=weight, op0=nl.multiply, operand0=inverse))
    return out
