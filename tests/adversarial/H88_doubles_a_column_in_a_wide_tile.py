# expect: pass
# workload: st_silu
# api: nki_legacy
# chip: trn1
"""Doubles one column of a wide tile, which it reads by a slice and writes by a number."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    count = nl.full((nl.par_dim(128), 4), 1.0, dtype=nl.float32, buffer=nl.sbuf)
    for _ in nl.sequential_range(3):
        count[p, 2] = nl.multiply(count[:, 2:3], 2.0)
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        done = nisa.activation(op=nl.silu, data=tile)
        nl.store(out[128 * row + p, f], value=nl.add(done, nl.subtract(count[p, 2], 8.0)))
    return out
