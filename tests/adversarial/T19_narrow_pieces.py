# expect: truthful
# workload: st_silu
# at_least: 0.98
"""Works on pieces much narrower than the tile they are of: each must be paid for."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    column = nl.arange(4)[None, :]
    for row in nl.affine_range(2):
        tile = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        tile[p, f] = nl.load(x[128 * row + p, f])
        for part in nl.affine_range(128):
            decay = nisa.activation(op=nl.exp, data=tile[p, 4 * part + column], scale=-1.0)
            inverse = nisa.reciprocal(data=nisa.tensor_scalar(data=decay, op0=nl.add, operand0=1.0))
            done = nl.multiply(tile[p, 4 * part + column], inverse)
            nl.store(out[128 * row + p, 4 * part + column], value=done)
    return out
