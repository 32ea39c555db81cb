# expect: pass
# workload: st_gqa
"""Attention with a running maximum over blocks of keys from the last to the first, keys and values loaded once a group."""

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
    for group in nl.affine_range(2):
        for half in nl.static_range(2):
            query = nl.load(q[2 * group + half, d, s])
            for block in nl.static_range(2):
                first = 128 * (1 - block)
                keys = nl.load(k[group, d, first + s])
                values = nl.load(v[group, first + p, c])
                logits = nl.multiply(nl.copy(nisa.nc_matmul(query, keys)), 0.125)
                here = nisa.tensor_reduce(nl.max, data=logits, axis=[1])
                top = here if block == 0 else nl.maximum(peak, here)
                negative = nl.negative(top)
                weight = nisa.activation(op=nl.exp, data=logits, bias=negative)
                turned = nl.copy(nisa.nc_transpose(weight))
                part = nl.copy(nisa.nc_matmul(turned, values))
                amount = nisa.tensor_reduce(nl.add, data=weight, axis=[1])
                if block == 0:
                    total, mass = part, amount
                else:
                    fade = nisa.activation(op=nl.exp, data=peak, bias=negative)
                    total = nl.add(nisa.tensor_scalar(data=total, op0=nl.multiply, operand0=fade), part)
                    mass = nl.add(nl.multiply(mass, fade), amount)
                peak = top
            inverse = nisa.reciprocal(data=mass)
            nl.store(
                out[2 * group + half, p, c], value=nisa.tensor_scalar(data=total, op0=nl.multiply, operand0=inverse)
            )
    return out
