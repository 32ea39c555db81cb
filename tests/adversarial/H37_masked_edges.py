# expect: pass
# workload: st_silu
"""Tiles that do not divide the rows and columns, with masks that cut at the edges only."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(192)[None, :]
    for row in nl.affine_range(3):
        for column in nl.affine_range(3):
            inside = (96 * row + p < 256) & (192 * column + f < 512) & (p < 96)
            tile = nl.load(x[96 * row + p, 192 * column + f], mask=inside)
            done = nisa.activation(op=nl.silu, data=tile, mask=inside)
            nl.store(out[96 * row + p, 192 * column + f], value=done, mask=inside)
    return out
