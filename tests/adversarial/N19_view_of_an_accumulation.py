# expect: reject
# caught by: compile_error.view_written
# workload: st_silu
"""A view of a tile to which is added in place."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        tile = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        tile[p, f] = nl.load(x[128 * row + p, f])
        kept = tile.view(nl.uint16).view(nl.float32)
        tile[p, f] *= nisa.activation(op=nl.sigmoid, data=tile[p, f])
        nl.store(out[128 * row + p, f], value=nl.multiply(nisa.activation(op=nl.sigmoid, data=kept), kept))
    return out
