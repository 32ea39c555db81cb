# expect: pass
# workload: st_silu
"""Iterations of an affine loop whose rows overlap, and who write equal values there."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for step in nl.affine_range(4):
        tile = nl.load(x[48 * step + p, f], mask=(48 * step + p < 256))
        done = nisa.activation(op=nl.silu, data=tile, mask=(48 * step + p < 256))
        nl.store(out[48 * step + p, f], value=done, mask=(48 * step + p < 256))
    return out
