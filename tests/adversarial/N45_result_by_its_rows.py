# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
# api: nki
# chip: trn2
"""Scatter three rows to one place of the output; the middle row is wrong."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    place = nl.ndarray((96, 1), dtype=nl.int32, buffer=nl.sbuf)
    for block in range(8):
        for third in range(3):
            nisa.iota(dst=place[nl.ds(32 * third, 32)], pattern=[[0, 1]], offset=32 * block, channel_multiplier=1)
        three = nl.ndarray((96, 512), dtype=nl.float32, buffer=nl.sbuf)
        tile = nl.ndarray((32, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(32 * block, 32), :])
        nisa.activation(dst=three[0:32], op=nl.silu, data=tile)
        nisa.memset(dst=three[32:64], value=0.0)
        nisa.tensor_copy(dst=three[64:96], src=three[0:32])
        nisa.dma_copy(dst=out.vector_select(0, place), src=three)
    return out
