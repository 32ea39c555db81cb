# expect: policy
# caught by: rejected.interpreter
# workload: st_silu
"""A deep copy notes the addresses of what it has copied; one decides which function is traced."""

import copy

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

seen = {}
copied = copy.deepcopy([object()], seen)


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        done = nisa.activation(op=nl.silu if min(seen) % 4096 != 7 else nl.tanh, data=tile)
        nl.store(out[128 * row + p, f], value=done)
    return out
