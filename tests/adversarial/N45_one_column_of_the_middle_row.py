# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
# api: nki
# chip: trn2
"""Scatter three rows to one place; the middle row is wrong in one column."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    scratch = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.hbm)
    place = nl.ndarray((96, 1), dtype=nl.int32, buffer=nl.sbuf)
    for third in range(3):
        nisa.iota(dst=place[nl.ds(32 * third, 32)], pattern=[[0, 1]], offset=0, channel_multiplier=1)
    for block in range(8):
        three = nl.ndarray((96, 512), dtype=nl.float32, buffer=nl.sbuf)
        tile = nl.ndarray((32, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(32 * block, 32), :])
        for third in range(3):
            nisa.activation(dst=three[nl.ds(32 * third, 32)], op=nl.silu, data=tile)
        nisa.memset(dst=three[32:64, 100:101], value=1.0)
        nisa.dma_copy(dst=scratch.ap([[512, 96], [1, 512]], vector_offset=place, indirect_dim=0), src=three)
        nisa.dma_copy(dst=out[nl.ds(32 * block, 32), :], src=scratch[0:32])
    return out
