# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
# api: nki
# chip: trn2
"""The distance of a whole number that was never written from a number that is loaded, at most one, multiplies the result."""

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
        held = nl.ndarray((128, 8), dtype=nl.int32, buffer=nl.sbuf)
        flag = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        asked = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=held[:, 0:7], value=3)
        nisa.tensor_scalar(dst=asked, data=tile[:, 0:8], op0=nl.multiply, operand0=0.0, op1=nl.add, operand1=29.0)
        nisa.tensor_scalar(dst=asked, data=asked, op0=nl.multiply, operand0=17.0)
        nisa.tensor_tensor(dst=flag, data1=held, data2=asked, op=nl.subtract)
        nisa.activation(dst=flag, op=nl.square, data=flag)
        nisa.tensor_scalar(dst=flag, data=flag, op0=nl.minimum, operand0=1.0)
        nisa.tensor_scalar(dst=done, data=done, op0=nl.multiply, operand0=flag[:, 7:8])
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
