# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Copies in place, to the other half, and between even and odd columns of one tile."""

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
        nisa.activation(dst=tile[:, 0:512], op=nl.silu, data=tile[:, 0:512])
        nisa.tensor_copy(dst=tile[:, 0:512:2], src=tile[:, 0:512:2])
        nisa.tensor_copy(dst=tile[:, 512:544], src=tile[:, 0:32])
        nisa.tensor_copy(dst=done, src=tile[:, 0:512])
        nisa.dma_copy(dst=out[row * 128 : row * 128 + 128, :], src=done)
    return out
