# expect: reject
# caught by: rejected.random
# workload: st_silu
"""SiLU that chooses, of two equal results, one at random."""

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
        coin = nl.greater(nl.rand((128, 512)), 0.5)
        nl.store(out[128 * row + p, f], value=nl.where(coin, done, nl.copy(done)))
    return out
