# expect: truthful
# workload: st_silu
# at_least: 7
"""Works in each of 64 iterations with the loop variable as a number: nothing of it is the same work again."""

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
        for level in nl.sequential_range(64):
            cut = nisa.tensor_scalar(data=sigmoid, op0=nl.minimum, operand0=level)
            same = nisa.tensor_scalar(data=nl.copy(cut), op0=nl.multiply, operand0=1.0)
            again = nisa.tensor_scalar(data=nl.copy(same), op0=nl.multiply, operand0=1.0)
            best[p, f] = nl.maximum(best[p, f], again)
        nl.store(out[128 * row + p, f], value=nl.multiply(tile, best))
    return out
