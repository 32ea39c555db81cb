# expect: pass
# workload: st_silu
"""A launch grid of two axes: rows, and columns of 256."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def piece(x, out, width):
    row, column = nl.program_id(0), nl.program_id(1)
    p = nl.arange(128)[:, None]
    f = nl.arange(width)[None, :]
    tile = nl.load(x[128 * row + p, width * column + f])
    scaled = nisa.tensor_scalar(data=nisa.activation(op=nl.sigmoid, data=tile), op0=nl.multiply, operand0=1.0)
    nl.store(out[128 * row + p, width * column + f], value=nl.multiply(tile, scaled))


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    piece[2, 512 // 256](x, out, 256)
    return out
