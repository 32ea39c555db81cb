# expect: reject
# caught by: compile_error.psum_bank
# workload: st_silu
# api: nki
# chip: trn2
"""Write two products of one shape: the second product lies across two PSUM banks."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    sums = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.psum)
    zero = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=zero, value=0.0)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        nisa.nc_matmul(dst=sums[:, 0:512], stationary=zero, moving=tile)
        nisa.nc_matmul(dst=sums[:, 256:768], stationary=zero, moving=tile)
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=done, data1=tile, data2=sums[:, 256:768], op=nl.add)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
