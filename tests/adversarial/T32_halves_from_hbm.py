# expect: truthful
# workload: st_silu_current
# api: nki
# chip: trn2
# at_least: 5.9
"""Load float32 as 16-bit halves: the forty copies of the halves have no fast mode."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    halves = x.view(nl.bfloat16)
    for row in range(2):
        half = nl.ndarray((128, 1024), dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.dma_copy(dst=half, src=halves[nl.ds(128 * row, 128), :])
        for n in range(40):
            other = nl.ndarray((128, 1024), dtype=nl.bfloat16, buffer=nl.sbuf)
            nisa.tensor_copy(dst=other, src=half, engine=nisa.vector_engine)
            half = other
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=done, op=nl.silu, data=half.view(nl.float32))
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
