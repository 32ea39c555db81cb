# expect: reject
# caught by: runtime_error.race
# workload: st_silu
# chip: trn2
# lnc: 2
"""Masks choose which core writes and which one adds."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    core = nl.program_id(axis=0)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in range(2):
        tile = nl.load(x[128 * row + p, f])
        done = nl.multiply(nisa.activation(op=nl.silu, data=tile), 0.5)
        nl.store(out[128 * row + p, f], value=done, mask=core + 0 * p < 1)
        nl.atomic_rmw(out[128 * row + p, f], value=done, op=nl.add, mask=core + 0 * p > 0)
    return out
