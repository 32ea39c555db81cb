# expect: reject
# caught by: runtime_error.repeated_destination
# workload: st_silu
# api: nki
# chip: trn2
"""One transfer writes windows of 64 columns that begin every 32 columns."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        one = nl.ndarray((128, 512), dtype=nl.float32)
        done = nl.ndarray((128, 512), dtype=nl.float32)
        nisa.dma_copy(dst=one, src=x[row * 128 : row * 128 + 128, :])
        nisa.activation(dst=done, op=nl.silu, data=one)
        window = [[512, 128], [32, 15], [1, 64]]
        nisa.dma_copy(dst=out.ap(pattern=window, offset=65536 * row), src=done.ap(pattern=window))
    return out
