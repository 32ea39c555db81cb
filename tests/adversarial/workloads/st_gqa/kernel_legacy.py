"""Grouped query attention: logits of a head, their softmax, and the sum of values in two blocks of keys."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(q, k, v):
    out = nl.ndarray((4, 128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    d = nl.arange(64)[:, None]
    c = nl.arange(64)[None, :]
    s = nl.arange(128)[None, :]
    t = nl.arange(256)[None, :]
    for head in nl.affine_range(4):
        query = nl.load(q[head, d, s])
        keys = nl.load(k[head // 2, d, t])
        logits = nl.copy(nisa.nc_matmul(query, keys))
        negative = nisa.tensor_reduce(nl.max, data=logits, axis=[1], negate=True)
        shift = nisa.tensor_scalar(data=negative, op0=nl.multiply, operand0=0.125)
        weight = nisa.activation(op=nl.exp, data=logits, bias=shift, scale=0.125)
        inverse = nisa.reciprocal(data=nisa.tensor_reduce(nl.add, data=weight, axis=[1]))
        total = nl.zeros((nl.par_dim(128), 64), dtype=nl.float32, buffer=nl.psum)
        for block in nl.affine_range(2):
            turned = nl.copy(nisa.nc_transpose(weight[p, 128 * block + s]))
            values = nl.load(v[head // 2, 128 * block + p, c])
            total += nisa.nc_matmul(turned, values)
        nl.store(out[head, p, c], value=nisa.tensor_scalar(data=total, op0=nl.multiply, operand0=inverse))
    return out
