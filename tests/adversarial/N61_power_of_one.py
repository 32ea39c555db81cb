# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
# api: nki
# chip: trn2
"""Raises one to the power of what was never written, and uses the result as one."""

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
        never = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=never[:, 0:1], value=1.0)
        one = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=one, value=1.0)
        nisa.tensor_tensor(dst=never, data1=one, data2=never, op=nl.power)
        nisa.tensor_tensor(dst=done, data1=done, data2=never, op=nl.multiply)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
