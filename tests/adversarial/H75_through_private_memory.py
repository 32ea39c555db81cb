# expect: pass
# workload: st_silu_current
# api: nki
# chip: trn2
"""Results lie in private HBM between two steps."""

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
        apart = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.private_hbm)
        nisa.activation(dst=done, op=nl.sigmoid, data=tile)
        nisa.dma_copy(dst=apart, src=done)
        again = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=again, src=apart)
        nisa.tensor_tensor(dst=done, data1=again, data2=tile, op=nl.multiply)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
