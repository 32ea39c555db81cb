# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Scatter two equal rows to the same place, which gives one result in any order."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    scratch = nl.ndarray((64, 512), dtype=nl.float32, buffer=nl.hbm)
    place = nl.ndarray((128, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.iota(dst=place[0:64], pattern=[[0, 1]], offset=0, channel_multiplier=1)
    nisa.iota(dst=place[64:128], pattern=[[0, 1]], offset=0, channel_multiplier=1)
    for quarter in range(4):
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile[0:64], src=x[nl.ds(64 * quarter, 64), :])
        nisa.dma_copy(dst=tile[64:128], src=x[nl.ds(64 * quarter, 64), :])
        nisa.activation(dst=done, op=nl.silu, data=tile)
        nisa.dma_copy(dst=scratch.ap([[512, 128], [1, 512]], vector_offset=place, indirect_dim=0), src=done)
        nisa.dma_copy(dst=out[nl.ds(64 * quarter, 64), :], src=scratch)
    return out
