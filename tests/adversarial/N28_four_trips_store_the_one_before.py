# expect: reject
# caught by: runtime_error.affine_order
# workload: st_silu
# api: nki_legacy
# chip: trn1
"""Store in each of four iterations the tile that the iteration before it made."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    c = nl.arange(1)[None, :]
    g = nl.arange(128)[None, :]
    held = nl.zeros((nl.par_dim(128), 640), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        w = nl.load(x[p, 128 * i + g])
        held[p, 128 * i + g] = nisa.activation(op=nl.silu, data=w)
        nl.store(out[p, 128 * i - 128 + g], value=held[p, 128 * i - 128 + g], mask=(i + 0 * p + 0 * g >= 1))
    nl.store(out[p, 384 + g], value=nl.copy(held[p, 384 + g]))
    nl.store(out[128 + p, f], value=nisa.activation(op=nl.silu, data=nl.load(x[128 + p, f])))
    return out
