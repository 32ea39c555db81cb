# expect: truthful
# workload: st_silu
# at_least: 1.6
"""A fill of the diagonal of a tile is taken for a fill of the whole square: what lies beside the diagonal counts as dead."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    g, h = nl.arange(64)[None, :], nl.arange(32)[None, :]
    table = nl.ndarray((nl.par_dim(128), 64, 64), dtype=nl.float32, buffer=nl.sbuf)
    for row in nl.static_range(2):
        tile = nl.load(x[128 * row + p, f])
        for step in nl.static_range(40):
            tile = nl.copy(tile)
        for part in nl.static_range(16):
            table[p, 32 * row + 2 * part, 32 * (1 - row) + h] = nisa.activation(op=nl.silu, data=tile[p, 32 * part + h])
    table[p, g, g] = nisa.memset((128, 64), 0.0, dtype=nl.float32)
    for row in nl.static_range(2):
        for part in nl.static_range(16):
            nl.store(
                out[128 * row + p, 32 * part + h], value=nl.copy(table[p, 32 * row + 2 * part, 32 * (1 - row) + h])
            )
    return out
