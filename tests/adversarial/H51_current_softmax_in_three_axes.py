# expect: pass
# workload: st_softmax
# api: nki
"""The current API: a tile of three axes, its sums by the activation, copies into parts by reshaped views."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in nl.affine_range(2):
        tile = nl.ndarray((128, 4, 128), dtype=nl.float32, buffer=nl.sbuf)
        weight = nl.ndarray((128, 4, 128), dtype=nl.float32, buffer=nl.sbuf)
        negative = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        flat, weights = tile.reshape((128, 512)), weight.reshape((128, 512))
        nisa.dma_copy(dst=flat, src=x[nl.ds(128 * row, 128), :])
        nisa.tensor_reduce(dst=negative, op=nl.maximum, data=flat, axis=1, negate=True)
        nisa.activation(
            dst=weights, op=nl.exp, data=flat, bias=negative, reduce_op=nl.add, reduce_res=total,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )  # fmt: skip
        nisa.reciprocal(dst=total, data=total)
        for part in range(4):
            nisa.tensor_scalar(dst=tile[:, part, :], data=weight[:, part, :], op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=flat)
    return out
