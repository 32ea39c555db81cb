# expect: pass
# workload: st_silu_current
# api: nki
# chip: trn2
# lnc: 2
"""Each core computes half of the columns of all rows, and hands half of them on through shared memory."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    shared = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), nl.ds(256 * core, 256)])
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        nisa.dma_copy(dst=shared[nl.ds(128 * row, 128), nl.ds(256 * core, 256)], src=tile)
    nisa.core_barrier(data=shared, cores=(0, 1))
    rows = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=rows, src=shared[nl.ds(128 * core, 128), :])
    nisa.dma_copy(dst=out[nl.ds(128 * core, 128), :], src=rows)
    return out
