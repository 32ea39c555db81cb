# expect: reject
# caught by: runtime_error.overlap
# workload: st_silu
# api: nki
# chip: trn2
"""A tile is scaled by its own first column, in place."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 544), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=0.0)
        nisa.dma_copy(dst=tile[:, 0:512], src=x[row * 128 : row * 128 + 128, :])
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=tile[:, 0:512], data=tile[:, 0:512], op0=nl.multiply, operand0=tile[:, 5:6])
        nisa.activation(dst=done, op=nl.silu, data=tile[:, 0:512])
        nisa.dma_copy(dst=out[row * 128 : row * 128 + 128, :], src=done)
    return out
