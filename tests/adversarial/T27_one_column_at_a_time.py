# expect: truthful
# workload: st_silu
# at_least: 0.98
"""The product of two tiles is written column by column, so that each operand looks like one number of a partition."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    one = nl.arange(1)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        weight = nisa.activation(op=nl.exp, data=tile, scale=-1.0)
        denominator = nisa.tensor_scalar(data=weight, op0=nl.add, operand0=1.0)
        inverse = nisa.reciprocal(data=denominator)
        done = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        for k in nl.affine_range(512):
            done[p, k + one] = nisa.tensor_tensor(tile[p, k + one], inverse[p, k + one], op=nl.multiply)
        nl.store(out[128 * row + p, f], value=done)
    return out
