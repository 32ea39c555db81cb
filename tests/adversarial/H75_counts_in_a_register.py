# expect: pass
# workload: st_silu_current
# api: nki
# chip: trn2
"""A loop on a register moves one block of columns at a time."""

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
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        for block in nl.dynamic_range(0, 512, 128):
            nisa.tensor_copy(
                dst=done.ap(pattern=[[512, 128], [1, 128]], scalar_offset=block, indirect_dim=1),
                src=tile.ap(pattern=[[512, 128], [1, 128]], scalar_offset=block, indirect_dim=1),
            )
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
