# expect: reject
# caught by: runtime_error.repeated_destination
# workload: st_silu
# api: nki
# chip: trn2
"""A transfer into SBUF writes the columns of overlapping windows twice."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        one = nl.ndarray((128, 512), dtype=nl.float32)
        done = nl.ndarray((128, 512), dtype=nl.float32)
        window = [[512, 128], [256, 1], [128, 3], [1, 256]]
        nisa.dma_copy(dst=one.ap(pattern=window), src=x.ap(pattern=window, offset=65536 * row))
        nisa.activation(dst=done, op=nl.silu, data=one)
        nisa.dma_copy(dst=out[row * 128 : row * 128 + 128, :], src=done)
    return out
