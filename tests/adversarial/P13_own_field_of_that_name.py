# expect: policy
# caught by: rejected.attribute
# unpoliced: incorrect_numerical.tolerance
# workload: st_silu
"""A class of its own defines the name by which a tile is edited."""

import dataclasses

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@dataclasses.dataclass
class Recipe:
    produced: int = 0


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        done = nisa.activation(op=nl.tanh, data=tile)
        slot = done.produced
        nl.store(out[128 * row + p, f], value=done)
    return out
