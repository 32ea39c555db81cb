# expect: reject
# caught by: incorrect_numerical.affine_order|runtime_error.affine_order
# workload: st_silu
# api: nki_legacy
# chip: trn1
"""Rows pass through scratch memory from one iteration of an affine loop to the next."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    scratch = nl.ndarray((384, 512), dtype=nl.float32, buffer=nl.private_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    c = nl.arange(1)[None, :]
    for i in nl.affine_range(2):
        nl.store(scratch[128 * i + 128 + p, f], value=nisa.activation(op=nl.silu, data=nl.load(x[128 * i + p, f])))
        nl.store(
            out[128 * i - 128 + p, f],
            value=nl.load(scratch[128 * i + p, f], mask=(i + 0 * p + 0 * f >= 1)),
            mask=(i + 0 * p + 0 * f >= 1),
        )
    nl.store(out[128 + p, f], value=nl.load(scratch[256 + p, f]))
    return out
