# expect: pass
# workload: st_softmax
# api: nki
# chip: trn2
"""The maximum is the first of the eight greatest."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        great = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        nisa.max8(dst=great, src=tile)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.subtract, operand0=great[:, 0:1])
        nisa.activation(dst=tile, op=nl.exp, data=tile)
        nisa.tensor_reduce(dst=total, op=nl.add, data=tile, axis=1)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=tile)
    return out
