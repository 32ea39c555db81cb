# expect: reject
# caught by: runtime_error.race
# workload: st_silu
# api: nki
# chip: trn2
# lnc: 2
"""The cores meet before one of them writes what the other one reads."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    held = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    core = nl.program_id(axis=0)
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[128 * core : 128 * core + 128, :])
    nisa.activation(dst=tile, op=nl.silu, data=tile)
    nisa.core_barrier(data=held, cores=(0, 1))
    nisa.dma_copy(dst=held[128 * core : 128 * core + 128, :], src=tile)
    if core == 1:
        for row in range(2):
            nisa.dma_copy(dst=tile, src=held[128 * row : 128 * row + 128, :])
            nisa.dma_copy(dst=out[128 * row : 128 * row + 128, :], src=tile)
    return out
