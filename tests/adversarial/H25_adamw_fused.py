# expect: pass
# workload: st_adamw
"""AdamW with factors folded into fewer instructions."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(theta, g, m, v):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    g_tile = nl.load(g[p, f])
    m_new = nl.add(nl.multiply(nl.load(m[p, f]), 0.009), nl.multiply(g_tile, 0.001))
    g_square = nisa.activation(op=nl.square, data=g_tile)
    v_new = nl.add(nl.multiply(nl.load(v[p, f]), 999.0), g_square)
    root = nl.add(nl.sqrt(v_new), 1e-8)
    decayed = nl.multiply(nl.load(theta[p, f]), 1.0 - 1e-5)
    nl.store(out[p, f], value=nl.subtract(decayed, nl.divide(m_new, root)))
    return out
