# expect: pass
# workload: st_matmul
# api: nki
"""The current API: the left operand is turned by the tensor engine, both rows accumulate in banks of their own."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    sums = []
    for _ in range(2):
        sums.append(nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum))
    for k in range(2):
        right = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=right, src=b[nl.ds(128 * k, 128), :])
        for row in range(2):
            left = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
            turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
            ready = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=left, src=a[nl.ds(128 * row, 128), nl.ds(128 * k, 128)])
            nisa.nc_transpose(dst=turned, data=left)
            nisa.tensor_copy(dst=ready, src=turned)
            nisa.nc_matmul(dst=sums[row], stationary=ready, moving=right, accumulate=k > 0)
    for row in range(2):
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=done, src=sums[row])
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
