# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
# api: nki
# chip: trn2
"""Scatter three rows to one place: the first row equals the last row, and the row between them is wrong."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    scratch = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.hbm)
    place = nl.ndarray((128, 1), dtype=nl.int32, buffer=nl.sbuf)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=done, op=nl.silu, data=tile)
        # rows 32..63 write rows 0..31 of scratch, and so do 0..31 and 96..127
        mix = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=mix[0:32], src=done[0:32])
        nisa.memset(dst=mix[32:64], value=7.0)
        nisa.tensor_copy(dst=mix[64:96], src=done[0:32])
        nisa.tensor_copy(dst=mix[96:128], src=done[96:128])
        nisa.iota(dst=place[0:32], pattern=[[0, 1]], offset=0, channel_multiplier=1)
        nisa.iota(dst=place[32:64], pattern=[[0, 1]], offset=0, channel_multiplier=1)
        nisa.iota(dst=place[64:96], pattern=[[0, 1]], offset=0, channel_multiplier=1)
        nisa.iota(dst=place[96:128], pattern=[[0, 1]], offset=96, channel_multiplier=1)
        nisa.dma_copy(dst=scratch.ap([[512, 128], [1, 512]], vector_offset=place, indirect_dim=0), src=mix)
        back = nl.ndarray((32, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=back, src=scratch[0:32])
        nisa.dma_copy(dst=out[nl.ds(128 * row, 32), :], src=back)
        nisa.dma_copy(dst=out[nl.ds(128 * row + 32, 96), :], src=done[32:128])
    return out
