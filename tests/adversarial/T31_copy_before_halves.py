# expect: truthful
# workload: st_silu_current
# api: nki
# chip: trn2
# at_least: 5.9
"""Copy bfloat16 before copies of halves of float32: the copies of halves have no fast mode."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    true = nl.ndarray((128, 1024), dtype=nl.bfloat16, buffer=nl.sbuf)
    twin = nl.ndarray((128, 1024), dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.memset(dst=true, value=1.0)
    nisa.tensor_copy(dst=twin, src=true, engine=nisa.vector_engine)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        half = tile.view(nl.bfloat16)
        for n in range(40):
            other = nl.ndarray((128, 1024), dtype=nl.bfloat16, buffer=nl.sbuf)
            nisa.tensor_copy(dst=other, src=half, engine=nisa.vector_engine)
            half = other
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=done, op=nl.silu, data=half.view(nl.float32))
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
