# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
# api: nki
# chip: trn2
"""The eight greatest leave out a number that was never written, unless it is greater."""

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
        held = nl.ndarray((128, 16), dtype=nl.float32, buffer=nl.sbuf)
        flag = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=held[:, 0:15], value=3.0e38)
        nisa.max8(dst=flag, src=held)
        nisa.tensor_scalar(dst=flag, data=flag, op0=nl.multiply, operand0=1.0 / 3.0e38)
        nisa.tensor_scalar(dst=done, data=done, op0=nl.multiply, operand0=flag[:, 7:8])
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
