# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
# api: nki
# chip: trn2
"""A copy on an engine writes 512 values to one column, and the last one is used."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=done, op=nl.silu, data=tile)
        last = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=last.ap([[1, 128], [0, 512]]), src=done)
        nisa.tensor_copy(dst=done[:, 511:512], src=last)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
