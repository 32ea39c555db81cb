# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Takes the first iteration from a loop by hand, and the others by a statement."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    loop = iter(nl.sequential_range(2))
    row = next(loop)
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, 0 : 0 + 512])
    nisa.activation(dst=tile, op=nl.silu, data=tile)
    nisa.dma_copy(dst=out[128 * row : 128 * row + 128, 0 : 0 + 512], src=tile)
    for row in loop:
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, 0 : 0 + 512])
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        nisa.dma_copy(dst=out[128 * row : 128 * row + 128, 0 : 0 + 512], src=tile)
    return out
