# expect: pass
# workload: st_silu
"""A launch grid: each program takes 128 rows."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def rows(x, out):
    row = nl.program_id(axis=0)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    tile = nl.load(x[128 * row + p, f])
    nl.store(out[128 * row + p, f], value=nisa.activation(op=nl.silu, data=tile))


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    rows[2](x, out)
    return out
