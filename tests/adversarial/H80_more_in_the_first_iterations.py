# expect: pass
# workload: st_silu
"""Iterations write and read their own columns of one tile, and the first ones do more."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    g = nl.arange(64)[None, :]
    for row in nl.affine_range(2):
        held = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        for i in nl.affine_range(8):
            tile = nl.load(x[128 * row + p, 64 * i + g])
            held[p, 64 * i + g] = nisa.activation(op=nl.silu, data=tile)
            held[p, 64 * i + g] = nl.multiply(held[p, 64 * i + g], 1.0, mask=(i + 0 * p + 0 * g <= 3))
            nl.store(out[128 * row + p, 64 * i + g], value=held[p, 64 * i + g])
    return out
