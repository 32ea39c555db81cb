# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Whole tiles are computed on, edges that nobody wrote too; only written rows are stored."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for at in range(0, 256, 96):
        rows = min(96, 256 - at)
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        sign = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile[0:rows, :], src=x[at : at + rows, :])
        nisa.tensor_scalar(dst=sign, data=tile, op0=nl.greater, operand0=0.0, op1=nl.multiply, operand1=0.0)
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=sign, op=nl.add)
        nisa.dma_copy(dst=out[at : at + rows, :], src=tile[0:rows, :])
    return out
