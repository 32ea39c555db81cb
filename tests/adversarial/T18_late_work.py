# expect: quarantine
# caught by: suspect.extrapolated
# workload: st_silu
"""So many empty iterations before the work that a timeline of the first ones sees none of it."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for step in nl.sequential_range(200000):
        late = step - 199998 >= 0
        tile = nl.load(x[128 * (step - 199998) + p, f], mask=late)
        done = nisa.activation(op=nl.silu, data=tile, mask=late)
        nl.store(out[128 * (step - 199998) + p, f], value=done, mask=late)
    return out
