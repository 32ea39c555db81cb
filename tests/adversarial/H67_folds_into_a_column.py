# expect: pass
# workload: st_softmax
# api: nki
"""Maxima and sums of parts lie in columns of one tile, and are folded into the first of these columns."""

import nki
import nki.isa as nisa
import nki.language as nl

PARTS = 4


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    wide = x.shape[1] // PARTS
    for row in nl.affine_range(x.shape[0] // 128):
        tile = nl.ndarray((128, PARTS, wide), dtype=nl.float32, buffer=nl.sbuf)
        folded = nl.ndarray((128, PARTS), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :].reshape((128, PARTS, wide)))
        for part in range(PARTS):
            nisa.tensor_reduce(dst=folded[:, part : part + 1], op=nl.maximum, data=tile[:, part, :], axis=1)
        nisa.tensor_reduce(dst=folded[:, 0:1], op=nl.maximum, data=folded, axis=1)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.subtract, operand0=folded[:, 0:1])
        nisa.activation(dst=tile, op=nl.exp, data=tile)
        for part in range(PARTS):
            nisa.tensor_reduce(dst=folded[:, part : part + 1], op=nl.add, data=tile[:, part, :], axis=1)
        nisa.tensor_reduce(dst=folded[:, 0:1], op=nl.add, data=folded, axis=1)
        nisa.reciprocal(dst=folded[:, 0:1], data=folded[:, 0:1])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=folded[:, 0:1])
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=tile.reshape((128, PARTS * wide)))
    return out
