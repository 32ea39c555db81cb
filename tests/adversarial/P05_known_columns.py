# expect: reject
# caught by: incorrect_shape.output_shape
# workload: st_any_rows
"""Refuses every shape but the one it is timed at."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, gain):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    one = nl.arange(1)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        column = nl.load(gain[128 * row + p, one])
        nl.store(out[128 * row + p, f], value=nisa.tensor_scalar(data=tile, op0=nl.multiply, operand0=column))
    return out
