# expect: pass
# workload: st_layernorm
"""Statistics of four pieces of each row, put together."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    c = nl.arange(128)[None, :]
    six = nl.arange(6)[None, :]
    one = nl.arange(1)[None, :]
    tile = nl.load(x[p, f])
    statistics = nl.ndarray((nl.par_dim(128), 24), dtype=nl.float32, buffer=nl.sbuf)
    for part in nl.affine_range(4):
        statistics[p, 6 * part + six] = nisa.bn_stats(data=tile[p, 128 * part + c])
    found = nisa.bn_aggr(data=statistics)
    inverse = nisa.activation(op=nl.rsqrt, data=nl.add(found[p, 1 + one], 1e-5))
    centered = nisa.tensor_scalar(data=tile, op0=nl.subtract, operand0=found[p, one])
    nl.store(out[p, f], value=nisa.tensor_scalar(data=centered, op0=nl.multiply, operand0=inverse))
    return out
