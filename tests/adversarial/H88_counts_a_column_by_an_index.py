# expect: pass
# workload: st_silu
# api: nki_legacy
# chip: trn1
"""Counts in a column that it reads as a whole and writes by an index."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    count = nl.zeros((nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    c = nl.arange(1)[None, :]
    for _ in nl.sequential_range(3):
        count[p, c] = nl.add(count, 1.0)
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        done = nisa.activation(op=nl.silu, data=tile)
        nl.store(out[128 * row + p, f], value=nl.add(done, nl.subtract(count, 3.0)))
    return out
