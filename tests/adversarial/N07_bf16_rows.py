# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_silu
"""SiLU computed in bfloat16 and stored as float32."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f], dtype=nl.bfloat16)
        nl.store(out[128 * row + p, f], value=nisa.activation(op=nl.silu, data=tile, dtype=nl.float32))
    return out
