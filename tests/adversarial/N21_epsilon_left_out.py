# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_adamw
"""One AdamW step without its epsilon; zeros are kept from dividing."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(theta, g, m, v):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    theta_tile = nl.load(theta[p, f])
    g_tile = nl.load(g[p, f])
    m_tile = nl.load(m[p, f])
    v_tile = nl.load(v[p, f])
    m_new = nl.add(nl.multiply(m_tile, 0.9), nl.multiply(g_tile, 0.1))
    v_new = nl.add(nl.multiply(v_tile, 0.999), nl.multiply(nl.multiply(g_tile, g_tile), 0.001))
    inverse = nisa.activation(op=nl.rsqrt, data=nl.maximum(nl.multiply(v_new, 1000.0), 1e-30))
    step = nl.multiply(nl.multiply(m_new, 0.01), inverse)
    nl.store(out[p, f], value=nl.subtract(nl.multiply(theta_tile, 1.0 - 1e-5), step))
    return out
