# expect: reject
# caught by: compile_error.affine_order
# workload: st_silu
"""The first program of a launch stores half of each result, and the third one writes the rows again."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def rows(x, out):
    program = nl.program_id(axis=0)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    row = 1 if program == 1 else 0
    tile = nl.load(x[128 * row + p, f])
    done = nisa.activation(op=nl.silu, data=tile)
    if program == 0:
        done = nl.multiply(done, 0.5)
    nl.store(out[128 * row + p, f], value=done)


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    rows[3](x, out)
    return out
