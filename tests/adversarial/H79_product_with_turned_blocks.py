# expect: pass
# workload: st_matmul
# api: nki
# chip: trn2
"""Turns blocks of the left matrix, and accumulates in one bank."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    turned = nl.ndarray((128, 2, 256), dtype=nl.float32, buffer=nl.sbuf)
    right = nl.ndarray((128, 2, 512), dtype=nl.float32, buffer=nl.sbuf)
    for k in range(2):
        nisa.dma_copy(dst=right[:, k, :], src=b[nl.ds(128 * k, 128), :])
        for m in range(2):
            tile = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
            moved = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
            nisa.dma_copy(dst=tile, src=a[nl.ds(128 * m, 128), nl.ds(128 * k, 128)])
            nisa.nc_transpose(dst=moved, data=tile)
            nisa.tensor_copy(dst=turned[:, k, nl.ds(128 * m, 128)], src=moved)
    for m in range(2):
        total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        for k in range(2):
            nisa.nc_matmul(dst=total, stationary=turned[:, k, nl.ds(128 * m, 128)], moving=right[:, k, :])
        made = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=made, src=total, engine=nisa.engine.scalar)
        nisa.dma_copy(dst=out[nl.ds(128 * m, 128), :], src=made)
    return out
