# expect: truthful
# workload: st_silu
# at_least: 1.6
"""A sum written to every third element of a tile, in two axes, is taken to cover all of it."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    table = nl.ndarray((nl.par_dim(128), 13824), dtype=nl.float32, buffer=nl.sbuf)
    p3, j3, k3 = nl.arange(128)[:, None, None], nl.arange(9)[None, :, None], nl.arange(512)[None, None, :]
    ones = nl.ndarray((nl.par_dim(128), 9, 512), dtype=nl.float32, buffer=nl.sbuf)
    ones[p3, j3, k3] = nisa.memset((128, 9, 512), 1.0, dtype=nl.float32)
    for row in nl.static_range(2):
        tile = nl.load(x[128 * row + p, f])
        for step in nl.static_range(40):
            tile = nl.copy(tile)
        table[p, 1536 * row + 3 * f + 1] = nisa.activation(op=nl.silu, data=tile)
    table[p3, 1536 * j3 + 3 * k3] = nisa.tensor_tensor(ones[p3, j3, k3], ones[p3, j3, k3], op=nl.add)
    for row in nl.static_range(2):
        nl.store(out[128 * row + p, f], value=nl.copy(table[p, 1536 * row + 3 * f + 1]))
    return out
