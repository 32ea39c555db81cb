# expect: reject
# caught by: runtime_error.affine_order
# workload: st_silu
"""Adds 100, 100 and -100 to a tile of int8 in three iterations: the sum saturates in some orders."""

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
        count = nl.ndarray((nl.par_dim(128), 512), dtype=nl.int8, buffer=nl.sbuf)
        count[p, f] = nisa.memset((128, 512), 0, nl.int8)
        for i in nl.affine_range(24):
            count[p, f] = nisa.tensor_scalar(
                count[p, f],
                op0=nl.add,
                operand0=100,
                dtype=nl.int8,
                mask=(i + 0 * p + 0 * f >= 3) & (i + 0 * p + 0 * f <= 3),
            )
            count[p, f] = nisa.tensor_scalar(
                count[p, f],
                op0=nl.add,
                operand0=-100,
                dtype=nl.int8,
                mask=(i + 0 * p + 0 * f >= 8) & (i + 0 * p + 0 * f <= 8),
            )
            count[p, f] = nisa.tensor_scalar(
                count[p, f],
                op0=nl.add,
                operand0=100,
                dtype=nl.int8,
                mask=(i + 0 * p + 0 * f >= 14) & (i + 0 * p + 0 * f <= 14),
            )
        share = nisa.tensor_scalar(count[p, f], op0=nl.multiply, operand0=0.01, dtype=nl.float32)
        nl.store(out[128 * row + p, f], value=nl.multiply(done, share))
    return out
