# expect: pass
# workload: st_silu_current
# api: nki
# chip: trn2
"""x / (1 + exp(-x)) with a reversed operand and a reciprocal."""

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
        power = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=power, data=tile, op0=nl.maximum, operand0=-60.0)
        nisa.activation(dst=power, op=nl.exp, data=power, scale=-1.0)
        nisa.tensor_scalar(dst=power, data=power, op0=nl.add, operand0=1.0)
        nisa.reciprocal(dst=power, data=power)
        nisa.scalar_tensor_tensor(dst=done, data=tile, op0=nl.multiply, operand0=1.0, op1=nl.multiply, operand1=power)
        nisa.activation(dst=done, op=nl.silu, data=tile)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
