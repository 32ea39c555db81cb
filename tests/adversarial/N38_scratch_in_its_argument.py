# expect: reject
# caught by: rejected.input_written
# workload: st_silu
"""Keeps a right intermediate result in its argument, which the caller still needs."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    h = nl.arange(64)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        one = nl.load(x[128 * row + p, f])
        nl.store(x[128 * row + p, f], value=nisa.activation(op=nl.silu, data=one))
        nl.store(out[128 * row + p, f], value=nl.load(x[128 * row + p, f]))
    return out
