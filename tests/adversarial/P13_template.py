# expect: policy
# caught by: rejected.attribute
# workload: st_silu
"""A template put together reads what is inside of a tile."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

TEMPLATE = "{0.pro" + "duced}"


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        done = nisa.activation(op=nl.silu, data=tile)
        seen = TEMPLATE.format(done)
        nl.store(out[128 * row + p, f], value=done if seen else tile)
    return out
