# expect: pass
# workload: st_silu_current
# api: nki
# chip: trn2
"""The first row comes from a place that a register names."""

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
        number = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.memset(dst=number, value=128 * row)
        nisa.dma_copy(
            dst=tile[0:1, :], src=x.ap(pattern=[[512, 1], [1, 512]], offset=0, scalar_offset=number, indirect_dim=0)
        )
        nisa.activation(dst=done, op=nl.silu, data=tile)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
