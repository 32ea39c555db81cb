# expect: reject
# caught by: runtime_error.exchange_cores
# workload: st_silu
# api: nki
# chip: trn2
# lnc: 2
"""Only the first core waits at a barrier."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    core = nl.program_id(axis=0)
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[128 * core : 128 * core + 128, :])
    nisa.activation(dst=tile, op=nl.silu, data=tile)
    nisa.dma_copy(dst=out[128 * core : 128 * core + 128, :], src=tile)
    if core == 0:
        nisa.core_barrier(data=out, cores=(0, 1))
    return out
