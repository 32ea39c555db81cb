# expect: reject
# caught by: runtime_error.affine_order
# workload: st_silu
"""Each iteration adds to its rows a ten-millionth of what the iteration before has computed."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    kept = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    for row in nl.affine_range(2):
        done = nisa.activation(op=nl.silu, data=nl.load(x[128 * row + p, f]))
        little = nl.multiply(kept[p, f], 1e-7)
        nl.store(out[128 * row + p, f], value=nl.add(done, little))
        kept[p, f] = nl.copy(done)
    return out
