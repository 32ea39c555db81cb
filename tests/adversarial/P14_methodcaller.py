# expect: policy
# caught by: rejected.module
# workload: st_silu
"""A method caller of the standard library asks an object for an attribute by its name."""

import operator

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

inside = operator.methodcaller("__getattribute__", "__globals__")(nisa.activation)
assert inside


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
