# expect: reject
# caught by: compile_error.affine_order
# workload: st_silu
"""The programs of a launch keep a tile in a Python list: one fills it, the next one stores it."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


held = []


@nki.jit
def rows(x, out):
    program = nl.program_id(axis=0)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    if program == 0 or program == 2:
        tile = nl.load(x[64 * program + p, f])
        held.append(nisa.activation(op=nl.silu, data=tile))
    else:
        nl.store(out[64 * program - 64 + p, f], value=held[-1])


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    held.clear()
    rows[4](x, out)
    return out
