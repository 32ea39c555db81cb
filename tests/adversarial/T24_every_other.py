# expect: truthful
# workload: st_silu
# at_least: 1.6
"""A fill of every other element of a tile, in one axis, is taken for a fill of all of it."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    table = nl.ndarray((nl.par_dim(128), 8400), dtype=nl.float32, buffer=nl.sbuf)
    for row in nl.static_range(2):
        tile = nl.load(x[128 * row + p, f])
        for step in nl.static_range(40):
            tile = nl.copy(tile)
        table[p, 1024 * row + 2 * f + 1] = nisa.activation(op=nl.silu, data=tile)
    table[p, 2 * nl.arange(4200)[None, :]] = nisa.memset((128, 4200), 0.0, dtype=nl.float32)
    for row in nl.static_range(2):
        nl.store(out[128 * row + p, f], value=nl.copy(table[p, 1024 * row + 2 * f + 1]))
    return out
