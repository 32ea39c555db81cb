# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
# api: nki
# chip: trn2
"""A running sum goes on from an accumulator that nobody set; comparisons hide it."""

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
        sums = nl.ndarray((128, 2), dtype=nl.float32, buffer=nl.sbuf)
        least = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar_cumulative(
            dst=sums, src=done[:, 0:2], op0=nl.multiply, op1=nl.add, imm0=1.0, reduce_cmd=nisa.reduce_cmd.reduce
        )
        nisa.tensor_tensor(dst=least, data1=sums[:, 0:1], data2=sums[:, 1:2], op=nl.equal)
        nisa.tensor_scalar(dst=least, data=least, op0=nl.less, operand0=2.0)
        nisa.tensor_scalar(dst=done, data=done, op0=nl.multiply, operand0=least)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
