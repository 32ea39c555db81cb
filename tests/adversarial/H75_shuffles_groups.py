# expect: pass
# workload: st_silu_current
# api: nki
# chip: trn2
"""Exchanges partitions inside groups, and back."""

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
        turned = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        lanes = [31 - lane for lane in range(32)]
        nisa.nc_stream_shuffle(dst=turned, src=tile, shuffle_mask=lanes)
        nisa.activation(dst=turned, op=nl.silu, data=turned)
        nisa.nc_stream_shuffle(dst=done, src=turned, shuffle_mask=lanes)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
