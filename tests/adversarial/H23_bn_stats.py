# expect: pass
# workload: st_layernorm
"""Layer normalization with the statistics instruction."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    h = nl.arange(256)[None, :]
    tile = nl.load(x[p, f])
    statistics = nisa.bn_stats(tile)
    moments = nisa.bn_aggr(statistics)
    mean = moments[p, nl.arange(1)[None, :]]
    variance = moments[p, 1 + nl.arange(1)[None, :]]
    inverse = nl.rsqrt(nl.add(variance, 1e-5))
    centered = nisa.tensor_scalar(data=tile, op0=nl.subtract, operand0=mean)
    nl.store(out[p, f], value=nisa.tensor_scalar(data=centered, op0=nl.multiply, operand0=inverse))
    return out
