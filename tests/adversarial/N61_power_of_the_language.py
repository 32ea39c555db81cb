# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
"""A power of zero of what was never written, by a function of the language."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    c = nl.arange(1)[None, :]
    for row in nl.affine_range(2):
        never = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        never[p, c] = nisa.memset((128, 1), 1.0, nl.float32)
        done = nisa.activation(op=nl.silu, data=nl.load(x[128 * row + p, f]))
        nl.store(out[128 * row + p, f], value=nl.multiply(done, nl.power(never[p, f], 0.0)))
    return out
