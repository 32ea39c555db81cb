# expect: pass
# workload: st_silu
"""A tile outside of an affine loop: at the edge it keeps rows of another iteration, which the store leaves out."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    held = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    held[p, f] = nisa.memset((128, 512), 0.0, nl.float32)
    for step in nl.affine_range(3):
        held[p, f] = nl.load(x[100 * step + p, f], mask=(100 * step + p < 256) & (p < 100))
        done = nisa.activation(op=nl.silu, data=held[p, f])
        nl.store(out[100 * step + p, f], value=done, mask=(100 * step + p < 256) & (p < 100))
    return out
