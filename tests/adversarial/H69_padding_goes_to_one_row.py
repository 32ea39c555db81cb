# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Scatter all rows of padding to one row that the kernel never reads."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    scratch = nl.ndarray((129, 512), dtype=nl.float32, buffer=nl.hbm)
    place = nl.ndarray((128, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.iota(dst=place, pattern=[[0, 1]], offset=0, channel_multiplier=1)
    nisa.memset(dst=place[96:128], value=128)
    for row in range(2):
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        nisa.activation(dst=done, op=nl.silu, data=tile)
        nisa.dma_copy(dst=scratch.ap([[512, 128], [1, 512]], vector_offset=place, indirect_dim=0), src=done)
        back = nl.ndarray((96, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=back, src=scratch[0:96])
        nisa.dma_copy(dst=out[nl.ds(128 * row, 96), :], src=back)
        nisa.dma_copy(dst=out[nl.ds(128 * row + 96, 32), :], src=done[96:128])
    return out
