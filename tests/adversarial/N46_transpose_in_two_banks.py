# expect: reject
# caught by: compile_error.psum_bank
# workload: st_silu
# api: nki
# chip: trn2
"""Write a transpose of the tensor engine across two PSUM banks."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    sums = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.psum)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        for c in range(4):
            turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
            nisa.nc_transpose(dst=sums[:, 448:576], data=tile[:, nl.ds(128 * c, 128)])
            nisa.tensor_copy(dst=turned, src=sums[:, 448:576])
            nisa.nc_transpose(dst=sums[:, 0:128], data=turned)
            nisa.tensor_copy(dst=done[:, nl.ds(128 * c, 128)], src=sums[:, 0:128])
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
