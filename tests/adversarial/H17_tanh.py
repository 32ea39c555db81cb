# expect: pass
# workload: st_silu
"""SiLU through the hyperbolic tangent."""

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
        nl.store(
            out[128 * row + p, f],
            value=nl.multiply(tile, nl.add(nl.multiply(nl.tanh(nl.multiply(tile, 0.5)), 0.5), 0.5)),
        )
    return out
