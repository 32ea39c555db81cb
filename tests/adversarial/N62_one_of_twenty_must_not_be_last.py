# expect: reject
# caught by: runtime_error.affine_order|incorrect_numerical.affine_order
# workload: st_silu
"""Writes one tile in twenty iterations: the result is right unless the eleventh iteration runs last."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.static_range(2):
        tile = nl.load(x[128 * row + p, f])
        done = nisa.activation(op=nl.silu, data=tile)
        held = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        held[p, f] = nisa.memset((128, 512), 1.0, nl.float32)

        worse = nl.multiply(done, 0.5)
        for i in nl.affine_range(20):
            held[p, f] = nisa.tensor_copy(done, mask=(i + 0 * p + 0 * f <= 10))
            held[p, f] = nisa.tensor_copy(worse, mask=(i + 0 * p + 0 * f >= 10) & (i + 0 * p + 0 * f <= 10))
            held[p, f] = nisa.tensor_copy(done, mask=(i + 0 * p + 0 * f >= 11))
        nl.store(out[128 * row + p, f], value=held[p, f])
    return out
