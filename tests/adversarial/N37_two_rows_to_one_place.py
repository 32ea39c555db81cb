# expect: reject
# caught by: runtime_error.repeated_destination
# workload: st_silu
"""Two rows with the same content are stored to each row of the result."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    h = nl.arange(64)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        one = nl.load(x[128 * row + p, f])
        done = nisa.activation(op=nl.silu, data=one)
        nl.store(out[128 * row + p, f], value=done[p, f])
        q = nl.arange(2)[:, None]
        for i in nl.affine_range(128):
            pair = nisa.activation(op=nl.silu, data=nl.load(x[128 * row + i + 0 * q, f]))
            nl.store(out[128 * row + i + 0 * q, f], value=pair)
    return out
