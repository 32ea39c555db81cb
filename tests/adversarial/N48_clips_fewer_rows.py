# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_any_rows
"""Cuts large numbers off where there are fewer rows than the workload has."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, gain):
    rows, width = x.shape
    out = nl.ndarray((rows, width), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(width)[None, :]
    one = nl.arange(1)[None, :]
    for row in nl.affine_range(rows // 128):
        tile = nl.load(x[128 * row + p, f])
        column = nl.load(gain[128 * row + p, one])
        if rows < 256:
            tile = nl.minimum(tile, 6.0)
        done = nisa.tensor_scalar(data=tile, op0=nl.multiply, operand0=column)
        nl.store(out[128 * row + p, f], value=done)
    return out
