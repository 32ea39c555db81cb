# expect: reject
# caught by: compile_error.local_scope
# workload: st_silu
# api: nki
# chip: trn2
# lnc: 2
"""The second core stores a tile from the first core's SBUF."""

import nki
import nki.isa as nisa
import nki.language as nl

HELD = []


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    core = nl.program_id(axis=0)
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[128 * core : 128 * core + 128, :])
    nisa.activation(dst=tile, op=nl.silu, data=tile)
    HELD.append(tile)
    if core == 1:
        nisa.dma_copy(dst=out[0:128, :], src=HELD[-2])
        nisa.dma_copy(dst=out[128:256, :], src=tile)
    return out
