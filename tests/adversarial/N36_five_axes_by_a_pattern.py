# expect: reject
# caught by: compile_error.access_pattern
# workload: st_silu
# api: nki
# chip: trn2
"""An access pattern of five steps; an engine has four."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    walk = [[512, 128], [32, 2], [64, 2], [128, 2], [256, 2], [1, 32]]
    for row in range(2):
        one = nl.ndarray((128, 512), dtype=nl.float32)
        done = nl.ndarray((128, 512), dtype=nl.float32)
        nisa.dma_copy(dst=one, src=x[row * 128 : row * 128 + 128, :])
        nisa.activation(dst=done.ap(pattern=walk), op=nl.silu, data=one.ap(pattern=walk))
        nisa.dma_copy(dst=out[row * 128 : row * 128 + 128, :], src=done)
    return out
