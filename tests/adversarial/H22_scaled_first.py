# expect: pass
# workload: st_rmsnorm
"""RMS normalization that divides before it squares."""

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
        square = nisa.activation(op=nl.square, data=tile, scale=512.0**-0.5)
        mean = nl.add(nisa.tensor_reduce(nl.add, data=square, axis=[1]), 1e-5)
        inverse = nl.rsqrt(mean)
        nl.store(out[128 * row + p, f], value=nl.multiply(nl.multiply(tile, inverse), gain))
    return out
