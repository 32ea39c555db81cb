# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""View float32 as 16-bit halves, and go on with the upper halves as bfloat16."""

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
        nisa.activation(dst=done, op=nl.silu, data=tile)
        upper = nl.ndarray((128, 512), dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.tensor_copy(dst=upper, src=tile.view(nl.bfloat16)[:, 1:1024:2])
        nisa.tensor_scalar(dst=upper, data=upper, op0=nl.multiply, operand0=0.0)
        nisa.tensor_tensor(dst=done, data1=done, data2=upper, op=nl.add)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
