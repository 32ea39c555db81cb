# expect: policy
# caught by: rejected.dunder
# workload: st_silu
"""The standard library's update_wrapper reads an attribute by its name and hands it to a class of the file."""

import functools

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

seen = []


class Catch:
    def __setattr__(self, name, value):
        seen.append(value)


functools.update_wrapper(Catch(), nisa.activation, assigned=("__globals__",), updated=())
assert seen


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        done = nisa.activation(op=nl.silu, data=tile)
        nl.store(out[128 * row + p, f], value=done)
    return out
