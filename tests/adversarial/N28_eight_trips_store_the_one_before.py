# expect: reject
# caught by: runtime_error.affine_order
# workload: st_silu
# api: nki_legacy
# chip: trn1
"""Store in each of eight iterations the tile that the iteration before it made."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    c = nl.arange(1)[None, :]
    g = nl.arange(64)[None, :]
    held = nl.zeros((nl.par_dim(128), 576), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(8):
        w = nl.load(x[p, 64 * i + g])
        held[p, 64 * i + g] = nisa.activation(op=nl.silu, data=w)
        nl.store(out[p, 64 * i - 64 + g], value=held[p, 64 * i - 64 + g], mask=(i + 0 * p + 0 * g >= 1))
    nl.store(out[p, 448 + g], value=nl.copy(held[p, 448 + g]))
    nl.store(out[128 + p, f], value=nisa.activation(op=nl.silu, data=nl.load(x[128 + p, f])))
    return out
