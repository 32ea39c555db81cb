# expect: reject
# caught by: compile_error.overlapping_lives
# workload: st_silu
# api: nki
# chip: trn2
"""A tile of ones that both rows use lies where each row is loaded, and is right for the first of them alone."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    ones = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf, address=(0, 2048))
    nisa.memset(dst=ones, value=1.0)
    for row in range(2):
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf, address=(0, 4096))
        scaled = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf, address=(0, 8192))
        nisa.tensor_copy(dst=scaled, src=ones)
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf, address=(0, 1024))
        nisa.dma_copy(dst=tile, src=x[row * 128 : row * 128 + 128, :])
        nisa.activation(dst=done, op=nl.silu, data=tile, scale=scaled)
        nisa.dma_copy(dst=out[row * 128 : row * 128 + 128, :], src=done)
    return out
