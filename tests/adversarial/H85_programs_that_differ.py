# expect: pass
# workload: st_silu
"""A launch whose programs ask which one they are: each has rows of its own, and a second launch uses what the first one left."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def first(x, scratch):
    program = nl.program_id(axis=0)
    p = nl.arange(64)[:, None]
    f = nl.arange(512)[None, :]
    tile = nl.load(x[64 * program + p, f])
    if program < 2:
        done = nisa.activation(op=nl.silu, data=tile)
    else:
        done = nl.multiply(tile, nisa.activation(op=nl.sigmoid, data=tile))
    nl.store(scratch[64 * program + p, f], value=done)


@nki.jit
def second(scratch, out):
    program = nl.program_id(axis=0)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    start = 128 if program == 0 else 0
    nl.store(out[start + p, f], value=nl.load(scratch[start + p, f]))


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    scratch = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    first[4](x, scratch)
    second[2](scratch, out)
    return out
