# expect: pass
# workload: st_rmsnorm
# api: nki
# chip: trn2
"""The gain is loaded to all partitions with a step of zero."""

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
        nisa.activation_reduce(dst=square, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=total)
        nisa.tensor_scalar(dst=total, data=total, op0=nl.multiply, operand0=1.0 / 512, op1=nl.add, operand1=1e-5)
        nisa.activation(dst=total, op=nl.rsqrt, data=total)
        nisa.scalar_tensor_tensor(dst=tile, data=tile, op0=nl.multiply, operand0=total, op1=nl.multiply, operand1=gain)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=tile)
    return out
