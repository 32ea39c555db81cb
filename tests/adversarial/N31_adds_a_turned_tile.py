# expect: reject
# caught by: compile_error.overlap
# workload: st_silu
"""Adds the reversed row to a row in place, and subtracts it again."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    p3 = nl.arange(128)[:, None, None]
    i, j = nl.arange(2)[None, :, None], nl.arange(256)[None, None, :]
    for row in nl.affine_range(2):
        tile = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        tile[p, f] = nisa.activation(op=nl.silu, data=nl.load(x[128 * row + p, f]))
        tile[p, f] = nl.add(tile[p, f], nl.multiply(tile[p, 511 - f], 0.0))
        tile[p, f] = nl.add(tile[p, f], tile[p, 511 - f])
        tile[p, f] = nl.multiply(tile[p, f], 1.0)
        nl.store(out[128 * row + p, f], value=tile[p, f])
    return out
