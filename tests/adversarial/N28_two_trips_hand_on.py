# expect: reject
# caught by: runtime_error.affine_order
# workload: st_silu
# api: nki_legacy
# chip: trn1
"""An affine loop of two iterations whose second stores what the first made."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    c = nl.arange(1)[None, :]
    held = nl.zeros((2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(2):
        held[i, p, f] = nisa.activation(op=nl.silu, data=nl.load(x[128 * i + p, f]))
        nl.store(out[128 * (1 - i) + p, f], value=held[1 - i, p, f])
    nl.store(out[128 + p, f], value=nl.copy(held[1, p, f]))
    return out
