# expect: pass
# workload: st_silu
# api: nki_legacy
# chip: trn1
"""Half of a tile is never written, and only the other half is read."""

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
        tile = nl.load(x[128 * row + p, f])
        wide = nl.ndarray((nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
        wide[p, f] = nisa.activation(op=nl.silu, data=tile)
        done = nl.copy(wide[p, f])
        nl.store(out[128 * row + p, f], value=done)
    return out
