# expect: pass
# workload: st_rmsnorm
# api: nki
# chip: trn2
"""The mean of the squares is the mean of bn_stats of squares."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, g):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    gain = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=gain, src=g.ap(pattern=[[0, 128], [1, 512]], offset=0))
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        square = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        parts = nl.ndarray((128, 6), dtype=nl.float32, buffer=nl.sbuf)
        both = nl.ndarray((128, 2), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=square, data1=tile, data2=tile, op=nl.multiply)
        nisa.bn_stats(dst=parts, data=square)
        nisa.bn_aggr(dst=both, data=parts)
        nisa.tensor_scalar(dst=total, data=both[:, 0:1], op0=nl.add, operand0=1e-5)
        nisa.activation(dst=total, op=nl.rsqrt, data=total)
        nisa.scalar_tensor_tensor(dst=tile, data=tile, op0=nl.multiply, operand0=total, op1=nl.multiply, operand1=gain)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=tile)
    return out
