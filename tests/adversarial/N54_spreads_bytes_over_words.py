# expect: reject
# caught by: runtime_error.overlap
# workload: st_silu
# api: nki
# chip: trn2
"""Whole numbers of one byte are spread over words that begin at the same place, then the words are added."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        held = nl.ndarray((128, 512), dtype=nl.int32, buffer=nl.sbuf)
        nisa.memset(dst=held, value=0)
        nisa.tensor_copy(dst=held, src=held.view(nl.int8)[:, 0:512])
        nisa.tensor_tensor(dst=tile, data1=tile, data2=held, op=nl.add)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=tile)
    return out
