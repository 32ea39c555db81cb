# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_silu
"""SiLU of what lies between -20000 and 20000."""

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
        kept = nl.minimum(nl.maximum(tile, -20000.0), 20000.0)
        nl.store(out[128 * row + p, f], value=nl.multiply(kept, nisa.activation(op=nl.sigmoid, data=tile)))
    return out
