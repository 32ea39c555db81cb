# expect: pass
# workload: st_silu
# chip: trn2
# lnc: 2
"""A launch on two cores that ask which one they are: each core has rows and a way of its own."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    core = nl.program_id(axis=0)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    tile = nl.load(x[128 * core + p, f])
    if core == 0:
        done = nisa.activation(op=nl.silu, data=tile)
    else:
        done = nl.multiply(tile, nisa.activation(op=nl.sigmoid, data=tile))
    nl.store(out[128 * core + p, f], value=done)
    return out
