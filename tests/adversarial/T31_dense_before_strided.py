# expect: truthful
# workload: st_silu_current
# api: nki
# chip: trn2
# at_least: 50
"""Load into contiguous elements before loads into every other element: each strided load has its own price."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    big = nl.ndarray((128, 512, 2), dtype=nl.float32, buffer=nl.sbuf)
    dense = nl.ndarray((128, 512, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=dense, src=x[0:128, :].reshape((128, 512, 1)))
    for row in range(2):
        for n in range(10):
            nisa.dma_copy(dst=big[:, :, 0:1], src=x[nl.ds(128 * row, 128), :].reshape((128, 512, 1)))
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=done, op=nl.silu, data=big[:, :, 0])
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
