# expect: reject
# caught by: runtime_error.affine_order
# workload: st_silu
"""Iterations scale a tile and add to it: the result is right if nothing stands between two of them."""

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
        held[p, f] = nisa.memset((128, 512), 0.0, nl.float32)
        for i in nl.affine_range(16):
            held[p, f] = nisa.tensor_scalar(
                held[p, f], op0=nl.multiply, operand0=2.0, mask=(i + 0 * p + 0 * f >= 3) & (i + 0 * p + 0 * f <= 3)
            )
            held[p, f] = nisa.tensor_tensor(
                held[p, f], done, op=nl.add, mask=(i + 0 * p + 0 * f >= 8) & (i + 0 * p + 0 * f <= 8)
            )
        nl.store(out[128 * row + p, f], value=held[p, f])
    return out
