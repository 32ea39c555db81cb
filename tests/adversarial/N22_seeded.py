# expect: reject
# caught by: rejected.random
# workload: st_layernorm
"""A generator that is seeded is a generator still."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    nl.random_seed(7)
    tile = nl.load(x[p, f])
    mean = nl.mean(tile, axis=[1])
    centered = nl.subtract(tile, mean)
    inverse = nl.rsqrt(nl.add(nl.mean(nl.square(centered), axis=[1]), 1e-5))
    luck = nl.minimum(nl.rand((128, 1)), 0.0)
    nl.store(out[p, f], value=nl.add(nl.multiply(centered, inverse), luck))
    return out
