# expect: pass
# workload: st_silu_nan
"""SiLU by the sigmoid, which keeps what is not a number."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        done = nl.multiply(tile, nisa.activation(op=nl.sigmoid, data=tile))
        nl.store(out[128 * row + p, f], value=done)
    return out
