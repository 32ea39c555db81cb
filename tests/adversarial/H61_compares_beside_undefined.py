# expect: pass
# workload: st_silu
"""Compares a tile of which a mask wrote a part, and stores under the same mask."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    w = nl.arange(520)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, w], mask=(w < 512))
        negative = nisa.tensor_scalar(data=tile, op0=nl.less, operand0=0.0)
        done = nl.subtract(nisa.activation(op=nl.silu, data=tile), nl.multiply(negative, 0.0))
        nl.store(out[128 * row + p, w], value=done, mask=(w < 512))
    return out
