# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
# api: nki
# chip: trn2
"""The bits of a bfloat16 that was never written, at most one, multiply the result."""

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
        held = nl.ndarray((128, 8), dtype=nl.bfloat16, buffer=nl.sbuf)
        flag = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=held[:, 0:7], value=3.0)
        nisa.tensor_scalar(dst=flag, data=held.view(nl.uint16), op0=nl.minimum, operand0=1)
        nisa.tensor_scalar(dst=done, data=done, op0=nl.multiply, operand0=flag[:, 7:8])
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
