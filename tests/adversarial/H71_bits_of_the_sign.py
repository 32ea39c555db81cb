# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Split each number into its sign bit and its other bits, and join both again."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        sign = nl.ndarray((128, 512), dtype=nl.uint32, buffer=nl.sbuf)
        size = nl.ndarray((128, 512), dtype=nl.uint32, buffer=nl.sbuf)
        both = nl.ndarray((128, 512), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=sign, data=tile.view(nl.uint32), op0=nl.bitwise_and, operand0=0x80000000)
        nisa.tensor_scalar(dst=size, data=tile.view(nl.uint32), op0=nl.bitwise_and, operand0=0x7FFFFFFF)
        nisa.tensor_tensor(dst=both, data1=sign, data2=size, op=nl.bitwise_or)
        nisa.activation(dst=done, op=nl.silu, data=both.view(nl.float32))
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
