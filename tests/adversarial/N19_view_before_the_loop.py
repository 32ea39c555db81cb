# expect: reject
# caught by: compile_error.view_written
# workload: st_silu
"""A view taken before a loop in which its tile is filled anew."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    tile = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    tile[p, f] = nl.load(x[p, f])
    first = tile.view(nl.uint16).view(nl.float32)
    for row in nl.sequential_range(2):
        half = nl.multiply(nisa.activation(op=nl.sigmoid, data=first), first)
        nl.store(out[128 * row + p, f], value=half)
        tile[p, f] = nl.load(x[128 + p, f])
    return out
