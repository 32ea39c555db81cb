# expect: truthful
# workload: st_silu
# at_least: 1.6
"""A fill of two lanes in eight of a tile is taken for a fill of all of it: what lies in the other lanes counts as dead."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    table = nl.ndarray((nl.par_dim(128), 33792), dtype=nl.float32, buffer=nl.sbuf)
    first = nl.ndarray((nl.par_dim(128), 8448), dtype=nl.float32, buffer=nl.sbuf)
    first[p, nl.arange(8448)[None, :]] = nisa.memset((128, 8448), 0.0, dtype=nl.float32)
    p3, j3, two3 = nl.arange(128)[:, None, None], nl.arange(4224)[None, :, None], nl.arange(2)[None, None, :]
    for row in nl.static_range(2):
        tile = nl.load(x[128 * row + p, f])
        for step in nl.static_range(40):
            tile = nl.copy(tile)
        table[p, 16384 * row + 8 * f + 1] = nisa.activation(op=nl.silu, data=tile)
    table[p3, 8 * j3 + 7 * two3] = nl.copy(first[p3, 4224 * two3 + j3])
    for row in nl.static_range(2):
        nl.store(out[128 * row + p, f], value=nl.copy(table[p, 16384 * row + 8 * f + 1]))
    return out
