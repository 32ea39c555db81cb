# expect: reject
# caught by: compile_error.overlap
# workload: st_silu
"""Transposes blocks of a row in place with a scale of one."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    p3 = nl.arange(128)[:, None, None]
    i, j = nl.arange(16)[None, :, None], nl.arange(32)[None, None, :]
    for row in nl.affine_range(2):
        tile = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        tile[p, f] = nisa.activation(op=nl.silu, data=nl.load(x[128 * row + p, f]))
        tile[p3, 32 * i + j] = nl.multiply(tile[p3, 16 * j + i], 1.0)
        k, m = nl.arange(32)[None, :, None], nl.arange(16)[None, None, :]
        tile[p3, 16 * k + m] = nl.multiply(tile[p3, 32 * m + k], 1.0)
        nl.store(out[128 * row + p, f], value=tile[p, f])
    return out
