# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_adamw
"""AdamW without the weight decay: 1e-5 of the result, half the published tolerance."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(theta, g, m, v):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    g_tile = nl.load(g[p, f])
    m_new = nl.add(nl.multiply(nl.load(m[p, f]), 0.9), nl.multiply(g_tile, 0.1))
    v_new = nl.add(nl.multiply(nl.load(v[p, f]), 0.999), nl.multiply(nl.multiply(g_tile, g_tile), 0.001))
    root = nisa.activation(op=nl.sqrt, data=v_new, scale=1000.0)
    inverse = nisa.reciprocal(data=nl.add(root, 1e-8))
    step = nl.multiply(nl.multiply(m_new, 0.01), inverse)
    nl.store(out[p, f], value=nl.subtract(nl.load(theta[p, f]), step))
    return out
