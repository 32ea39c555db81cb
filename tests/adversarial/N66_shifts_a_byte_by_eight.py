# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
# api: nki
# chip: trn2
"""A byte is shifted by as many bits as it has."""

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
        held = nl.ndarray((128, 512), dtype=nl.uint8, buffer=nl.sbuf)
        zero = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=held, value=255)
        nisa.tensor_scalar(dst=held, data=held, op0=nl.right_shift, operand0=8)
        nisa.tensor_copy(dst=zero, src=held)
        nisa.tensor_tensor(dst=done, data1=done, data2=zero, op=nl.add)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
