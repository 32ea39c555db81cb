# expect: pass
# workload: st_silu_current
# api: nki
# chip: trn2
"""Tiles of 200 columns in buffers that are larger than what is used."""

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
        for start in range(0, 512, 200):
            size = min(200, 512 - start)
            part = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=part[:, 0:size], op=nl.silu, data=tile[:, start : start + size])
            nisa.tensor_copy(dst=done[:, start : start + size], src=part[:, 0:size])
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
