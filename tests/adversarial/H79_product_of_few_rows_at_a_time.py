# expect: pass
# workload: st_matmul
# api: nki
# chip: trn2
"""Contracts over 32 rows at a time, and adds in SBUF."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for m in range(2):
        made = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=made, value=0.0)
        for k in range(8):
            left = nl.ndarray((32, 128), dtype=nl.float32, buffer=nl.sbuf)
            right = nl.ndarray((32, 512), dtype=nl.float32, buffer=nl.sbuf)
            part = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            nisa.dma_copy(dst=left, src=a.ap(pattern=[[1, 32], [256, 128]], offset=128 * 256 * m + 32 * k))
            nisa.dma_copy(dst=right, src=b[nl.ds(32 * k, 32), :])
            nisa.nc_matmul(dst=part, stationary=left, moving=right)
            nisa.tensor_tensor(dst=made, data1=made, data2=part, op=nl.add)
        nisa.dma_copy(dst=out[nl.ds(128 * m, 128), :], src=made)
    return out
