# expect: reject
# caught by: rejected.attribute
# unpoliced: compile_error.audit
# workload: st_silu
"""exec through the imports of a module of the standard library."""

import enum

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

enum.sys.modules["builtins"].exec("nl.tanh = nl.silu", {"nl": nl})


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        nl.store(out[128 * row + p, f], value=nisa.activation(op=nl.tanh, data=tile))
    return out
