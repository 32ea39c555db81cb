# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
# api: nki
# chip: trn2
"""The first rows are read at the place that a register happens to hold."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    place = nisa.register_alloc()
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        if row == 0:
            nisa.dma_copy(dst=tile, src=x.ap([[512, 128], [1, 512]], scalar_offset=place, indirect_dim=0))
        else:
            nisa.dma_copy(dst=tile, src=x[128:256, :])
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=tile)
    return out
