# expect: truthful
# workload: st_silu
# at_least: 6
"""Selects in each of 64 iterations by a condition on the loop variable: nothing of it is the same work again."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        sigmoid = nisa.activation(op=nl.sigmoid, data=tile)
        best = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        for part in nl.sequential_range(64):
            piece = nisa.affine_select(pred=(8 * part + 7 >= f), on_true_tile=sigmoid[p, f], on_false_value=0.0)
            same = nisa.tensor_scalar(data=nl.copy(piece), op0=nl.multiply, operand0=1.0)
            best[p, f] = nl.maximum(best[p, f], nl.copy(same))
        nl.store(out[128 * row + p, f], value=nl.multiply(tile, best))
    return out
