# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""A sum of squares goes on from block to block, and is compared with zero."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)

    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        nisa.activation(dst=done, op=nl.silu, data=tile)
        parts = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        for block in range(4):
            command = nisa.reduce_cmd.reduce if block else nisa.reduce_cmd.reset_reduce
            nisa.activation(
                dst=parts,
                op=nl.square,
                data=done[:, nl.ds(128 * block, 128)],
                reduce_op=nl.add,
                reduce_res=total,
                reduce_cmd=command,
            )
        nisa.tensor_scalar(dst=total, data=total, op0=nl.greater_equal, operand0=0.0)
        nisa.tensor_scalar(dst=done, data=done, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
