# expect: pass
# workload: st_silu
# chip: trn2
# lnc: 2
"""Each core clears its own rows and adds to them twice."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    core = nl.program_id(axis=0)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    nl.store(out[128 * core + p, f], value=nl.zeros((128, 512), dtype=nl.float32, buffer=nl.sbuf))
    tile = nl.load(x[128 * core + p, f])
    half = nl.multiply(nisa.activation(op=nl.silu, data=tile), 0.5)
    nl.atomic_rmw(out[128 * core + p, f], value=half, op=nl.add)
    nl.atomic_rmw(out[128 * core + p, f], value=half, op=nl.add)
    return out
