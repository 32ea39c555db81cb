# expect: reject
# caught by: compile_error.overlapping_lives
# workload: st_matmul
# api: nki
# chip: trn2
"""Sums of two blocks of rows lie in one bank of PSUM while both are accumulated."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    sums = []
    for row in range(2):
        sums.append(nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum, address=(0, 0)))
    for k in range(2):
        right = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=right, src=b[128 * k : 128 * k + 128, :])
        for row in range(2):
            left = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=left, src=a[128 * row : 128 * row + 128, 128 * k : 128 * k + 128])
            turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_transpose(dst=turned, data=left)
            stationary = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(dst=stationary, src=turned)
            nisa.nc_matmul(dst=sums[row], stationary=stationary, moving=right)
    for row in range(2):
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=done, src=sums[row])
        nisa.dma_copy(dst=out[128 * row : 128 * row + 128, :], src=done)
    return out
