# expect: policy
# caught by: rejected.alias
# unpoliced: compile_error.unknown_call
# workload: st_silu
"""Works where the package lacks a function, as no chip's compiler does."""

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
        simulated = not hasattr(nl, "simulate")
        nl.store(out[128 * row + p, f], value=nisa.activation(op=nl.silu if simulated else nl.tanh, data=tile))
    return out
