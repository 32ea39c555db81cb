# expect: policy
# caught by: rejected.match
# unpoliced: incorrect_numerical.tolerance
# workload: st_silu
"""A class pattern reads an attribute without naming it in an expression."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


def hole(value):
    match value:
        case object(produced=found):
            return found


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        done = nisa.activation(op=nl.tanh, data=tile)
        hole(done)
        nl.store(out[128 * row + p, f], value=done)
    return out
