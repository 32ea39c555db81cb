# expect: policy
# caught by: rejected.alias
# workload: st_silu
"""getattr under another name reads what the source does not show."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

read = list(map(getattr, [nl], ["to" + "ol", "silu"][1:]))


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        nl.store(out[128 * row + p, f], value=nisa.activation(op=read[0], data=tile))
    return out
