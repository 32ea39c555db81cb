# expect: pass
# workload: st_gqa
"""Attention whose sums of weights come out of the product with the values, by a column of ones beside them."""

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
    e = nl.arange(65)[None, :]
    one = nl.arange(1)[None, :]
    for group in nl.affine_range(2):
        keys = nl.load(k[group, d, t])
        beside = nl.ndarray((2, nl.par_dim(128), 65), dtype=nl.float32, buffer=nl.sbuf)
        for block in nl.static_range(2):
            beside[block, p, c] = nl.load(v[group, 128 * block + p, c])
            beside[block, p, 64 + one] = nisa.memset((128, 1), 1.0, nl.float32)
        for half in nl.affine_range(2):
            query = nl.load(q[2 * group + half, d, s])
            scaled = nisa.tensor_scalar(data=query, op0=nl.multiply, operand0=0.125)
            logits = nl.copy(nisa.nc_matmul(scaled, keys))
            negative = nisa.tensor_reduce(nl.max, data=logits, axis=[1], negate=True)
            weight = nisa.activation(op=nl.exp, data=logits, bias=negative)
            total = nl.zeros((nl.par_dim(128), 65), dtype=nl.float32, buffer=nl.psum)
            for block in nl.static_range(2):
                turned = nl.copy(nisa.nc_transpose(weight[p, 128 * block + s]))
                total += nisa.nc_matmul(turned, beside[block, p, e])
            both = nl.copy(total)
            nl.store(out[2 * group + half, p, c], value=nl.divide(both[p, c], both[p, 64 + one]))
    return out
