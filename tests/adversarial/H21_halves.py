# expect: pass
# workload: st_rmsnorm
"""RMS normalization that sums two halves and applies the gain first."""

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
        square = nl.multiply(tile, tile)
        first = nisa.tensor_reduce(nl.add, data=square[p, h], axis=[1])
        second = nisa.tensor_reduce(nl.add, data=square[p, 256 + h], axis=[1])
        mean = nl.add(nl.multiply(nl.add(second, first), 1.0 / 512), 1e-5)
        inverse = nisa.activation(op=nl.rsqrt, data=mean)
        gained = nl.multiply(tile, gain)
        nl.store(out[128 * row + p, f], value=nisa.tensor_scalar(data=gained, op0=nl.multiply, operand0=inverse))
    return out
