# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
# api: nki
# chip: trn2
"""A number is shifted by minus one bits."""

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
        nisa.activation(dst=done, op=nl.silu, data=tile)
        held = nl.ndarray((128, 512), dtype=nl.int32, buffer=nl.sbuf)
        by = nl.ndarray((128, 512), dtype=nl.int32, buffer=nl.sbuf)
        zero = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=held, value=1)
        nisa.memset(dst=by, value=-1)
        nisa.tensor_tensor(dst=held, data1=held, data2=by, op=nl.left_shift)
        nisa.tensor_copy(dst=zero, src=held)
        nisa.tensor_tensor(dst=done, data1=done, data2=zero, op=nl.add)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
