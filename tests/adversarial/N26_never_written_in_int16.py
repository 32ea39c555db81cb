# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
# api: nki_legacy
# chip: trn1
"""Adds an integer tile of which one column was written: memory that happens to hold zeros."""

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
        never = nl.ndarray((nl.par_dim(128), 512), dtype=nl.int16, buffer=nl.sbuf)
        never[p, c] = nisa.memset((128, 1), 0, nl.int16)
        moved = nisa.tensor_copy(never[p, f], dtype=nl.float32)
        done = nisa.activation(op=nl.silu, data=nl.add(tile, moved))
        nl.store(out[128 * row + p, f], value=done)
    return out
