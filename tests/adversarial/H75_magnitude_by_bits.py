# expect: pass
# workload: st_silu_current
# api: nki
# chip: trn2
"""Clears the sign of floats as integers, and multiplies by the float itself."""

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
        size = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=size.view(nl.int32), data=tile.view(nl.int32), op0=nl.bitwise_and, operand0=0x7FFFFFFF)
        nisa.activation(dst=size, op=nl.sigmoid, data=size)
        mask = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=done, op=nl.silu, data=tile)
        nisa.tensor_scalar(dst=mask, data=size, op0=nl.greater_equal, operand0=0.5)
        nisa.tensor_tensor(dst=done, data1=done, data2=mask, op=nl.multiply)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
