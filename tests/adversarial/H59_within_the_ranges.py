# expect: pass
# workload: st_silu
"""Takes a sine and a logarithm within the ranges that are documented."""

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
        done = nisa.activation(op=nl.silu, data=tile)
        size = nl.minimum(nl.abs(tile), 3.0)
        wave = nisa.activation(op=nl.sin, data=size)
        logged = nisa.activation(op=nl.log, data=nl.add(size, 1.0))
        factor = nisa.tensor_scalar(data=nl.add(wave, logged), op0=nl.greater, operand0=-2.0)
        nl.store(out[128 * row + p, f], value=nl.multiply(done, factor))
    return out
