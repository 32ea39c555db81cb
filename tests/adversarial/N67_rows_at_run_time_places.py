# expect: reject
# caught by: runtime_error.affine_order
# workload: st_silu
"""Iteration 4 of 7 gathers rows, by an index tile, that the others scatter to run-time places."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    scratch = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.private_hbm)
    index = nisa.iota(p, dtype=nl.int32)
    for row in nl.static_range(2):
        tile = nl.load(x[128 * row + p, f])
        done = nisa.activation(op=nl.silu, data=tile)
        nl.store(scratch[128 * row + p, f], value=tile)
        place = nisa.tensor_scalar(index, op0=nl.add, operand0=128 * row, dtype=nl.int32)
        for i in nl.affine_range(7):
            nl.store(scratch[place[p, 0], f], value=done, mask=(i + 0 * p + 0 * f <= 3))
            nl.store(scratch[place[p, 0], f], value=done, mask=(i + 0 * p + 0 * f >= 5))
            back = nl.load(scratch[place[p, 0], f], mask=(i + 0 * p + 0 * f >= 4) & (i + 0 * p + 0 * f <= 4))
            nl.store(out[128 * row + p, f], value=back, mask=(i + 0 * p + 0 * f >= 4) & (i + 0 * p + 0 * f <= 4))
    return out
