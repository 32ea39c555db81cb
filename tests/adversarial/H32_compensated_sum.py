# expect: pass
# workload: st_softmax
"""Adds the pieces of each row with the rounding error of every step carried on."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    c = nl.arange(64)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        negative = nisa.tensor_reduce(nl.max, data=tile, axis=[1], negate=True)
        weight = nisa.activation(op=nl.exp, data=tile, bias=negative)
        total = nisa.tensor_reduce(nl.add, data=weight[p, c], axis=[1])
        lost = nl.zeros((nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
        for part in range(1, 8):
            piece = nl.subtract(nisa.tensor_reduce(nl.add, data=weight[p, 64 * part + c], axis=[1]), lost)
            longer = nl.add(total, piece)
            lost = nl.subtract(nl.subtract(longer, total), piece)
            total = longer
        done = nisa.tensor_scalar(data=weight, op0=nl.multiply, operand0=nisa.reciprocal(data=total))
        nl.store(out[128 * row + p, f], value=done)
    return out
