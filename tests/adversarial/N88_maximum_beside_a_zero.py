# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_softmax
# api: nki
# chip: trn2
"""The maximum of a row is taken of its numbers and a column of zeros, as if the row were padded."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 513), dtype=nl.float32, buffer=nl.sbuf)
        top = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        weight = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=tile[:, 512:513], value=0.0)
        nisa.dma_copy(dst=tile[:, 0:512], src=x[nl.ds(128 * row, 128), :])
        nisa.tensor_reduce(dst=top, op=nl.maximum, data=tile, axis=1, negate=True)
        nisa.activation(dst=weight, op=nl.exp, data=tile[:, 0:512], bias=top)
        nisa.tensor_reduce(dst=total, op=nl.add, data=weight, axis=1)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=weight, data=weight, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=weight)
    return out
