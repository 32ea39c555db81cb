# expect: pass
# workload: st_silu_current
# api: nki
# chip: trn2
"""Computes even and odd columns by access patterns."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        for half in range(2):
            nisa.activation(
                dst=done.ap(pattern=[[512, 128], [2, 256]], offset=half),
                op=nl.silu,
                data=tile.ap(pattern=[[512, 128], [2, 256]], offset=half),
            )
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
