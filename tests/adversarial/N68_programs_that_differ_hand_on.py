# expect: reject
# caught by: compile_error.affine_order
# workload: st_silu
"""A launch of three programs that ask in Python which one they are: each stores what the one before it left."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def rows(x, scratch, out):
    core = nl.program_id(axis=0)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    if core == 2:
        back = nl.load(scratch[128 + p, f])
        nl.store(out[128 + p, f], value=back)
    else:
        tile = nl.load(x[128 * core + p, f])
        done = nisa.activation(op=nl.silu, data=tile)
        nl.store(scratch[128 * core + p, f], value=done)
    if core == 1:
        back = nl.load(scratch[p, f])
        nl.store(out[p, f], value=back)


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    scratch = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    rows[3](x, scratch, out)
    return out
