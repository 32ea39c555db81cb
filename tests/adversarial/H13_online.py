# expect: pass
# workload: st_softmax
"""Softmax that goes over the row once and corrects the first half afterwards."""

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
        first_max = nisa.tensor_reduce(nl.max, data=tile[p, h], axis=[1])
        first_weight = nisa.activation(op=nl.exp, data=tile[p, h], bias=nl.multiply(first_max, -1.0))
        first_total = nisa.tensor_reduce(nl.add, data=first_weight, axis=[1])
        whole_max = nl.maximum(first_max, nisa.tensor_reduce(nl.max, data=tile[p, 256 + h], axis=[1]))
        negative = nl.multiply(whole_max, -1.0)
        correction = nl.exp(nl.subtract(first_max, whole_max))
        second_weight = nisa.activation(op=nl.exp, data=tile[p, 256 + h], bias=negative)
        second_total = nisa.tensor_reduce(nl.add, data=second_weight, axis=[1])
        total = nl.add(nl.multiply(first_total, correction), second_total)
        inverse = nisa.reciprocal(data=total)
        result = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        scale = nl.multiply(correction, inverse)
        result[p, h] = nisa.tensor_scalar(data=first_weight, op0=nl.multiply, operand0=scale)
        result[p, 256 + h] = nisa.tensor_scalar(data=second_weight, op0=nl.multiply, operand0=inverse)
        nl.store(out[128 * row + p, f], value=result[p, f])
    return out
