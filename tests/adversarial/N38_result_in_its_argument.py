# expect: reject
# caught by: rejected.input_written
# workload: st_silu
"""Overwrites its argument with the result and returns it."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    p = nl.arange(128)[:, None]
    h = nl.arange(64)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        one = nl.load(x[128 * row + p, f])
        nl.store(x[128 * row + p, f], value=nisa.activation(op=nl.silu, data=one))
    return x
