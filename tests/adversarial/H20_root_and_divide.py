# expect: pass
# workload: st_rmsnorm
"""RMS normalization with a square root and a division."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, g):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    h = nl.arange(256)[None, :]
    gain = nl.load(g.reshape((1, 512))[nl.arange(1)[:, None], f]).broadcast_to((128, 512))
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        mean = nl.mean(nl.square(tile), axis=[1])
        root = nl.sqrt(nl.add(mean, 1e-5))
        nl.store(out[128 * row + p, f], value=nl.multiply(nl.divide(tile, root), gain))
    return out
