# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
# api: nki
# chip: trn2
"""One whole number that was never written is cut off far out: at 2,000,000,000 and one beyond, and the result goes to all partitions."""

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
        one = nl.ndarray((1, 8), dtype=nl.int32, buffer=nl.sbuf)
        told = nl.ndarray((1, 8), dtype=nl.float32, buffer=nl.sbuf)
        there = nl.ndarray((1, 8), dtype=nl.float32, buffer=nl.hbm)
        flag = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=one[:, 0:7], value=3)
        nisa.tensor_scalar(
            dst=told, data=one, op0=nl.maximum, operand0=2000000000.0, op1=nl.add, operand1=-2000000000.0
        )
        nisa.dma_copy(dst=there, src=told)
        nisa.dma_copy(dst=flag, src=there.ap([[0, 128], [1, 8]]))
        nisa.tensor_scalar(dst=done, data=done, op0=nl.add, operand0=flag[:, 7:8])
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
