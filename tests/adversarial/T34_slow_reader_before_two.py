# expect: truthful
# workload: st_silu_current
# api: nki
# chip: trn2
# at_least: 2.8
"""Read a tile by GpSimd, then by two other engines: the next load waits for all three engines."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    last = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    more = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    other = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    for turn in range(20):
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * (turn % 2), 128), :])
        nisa.tensor_tensor(dst=last, data1=tile, data2=tile, op=nl.add, engine=nisa.gpsimd_engine)
        nisa.activation(dst=other, op=nl.exp, data=tile)
        nisa.tensor_copy(dst=more, src=tile, engine=nisa.vector_engine)
    for row in range(2):
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=done, src=x[nl.ds(128 * row, 128), :])
        nisa.activation(dst=done, op=nl.silu, data=done)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
