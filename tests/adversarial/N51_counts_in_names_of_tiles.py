# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_silu
# api: nki
# chip: trn2
"""The name of the newest tile counts the iterations."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    mark = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf, name="0")
    for part in nl.affine_range(64):
        for row in range(2):
            tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, nl.ds(8 * part, 8)])
            if int(mark.name) < 9:
                nisa.activation(dst=tile, op=nl.silu, data=tile)
            nisa.dma_copy(dst=out[128 * row : 128 * row + 128, nl.ds(8 * part, 8)], src=tile)
        mark = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf, name=str(int(mark.name) + 1))
    return out
