# expect: reject
# caught by: compile_error.overlap
# workload: st_silu
"""Exchanges the halves of each row in place, twice."""

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
        for _ in range(2):
            tile[p3, 256 * i + j] = nl.copy(tile[p3, 256 - 256 * i + j])
        nl.store(out[128 * row + p, f], value=tile[p, f])
    return out
