# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
# api: nki
# chip: trn2
"""The only reset of an accumulator is in a loop that runs no round."""

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
        parts = nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        count = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.memset(dst=count, value=0)
        for _ in nl.dynamic_range(nisa.register_alloc(count)):
            nisa.activation(
                dst=parts,
                op=nl.copy,
                data=done[:, 0:4],
                reduce_op=nl.add,
                reduce_res=total,
                reduce_cmd=nisa.reduce_cmd.reset_reduce,
            )
        nisa.activation(
            dst=parts,
            op=nl.copy,
            data=done[:, 0:4],
            reduce_op=nl.add,
            reduce_res=total,
            reduce_cmd=nisa.reduce_cmd.reduce,
        )
        nisa.tensor_scalar(dst=total, data=total, op0=nl.not_equal, operand0=7.25)
        nisa.tensor_scalar(dst=done, data=done, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
