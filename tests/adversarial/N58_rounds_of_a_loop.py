# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
# api: nki
# chip: trn2
"""The number of rounds was never written, and is cut off at one."""

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
        held = nl.ndarray((1, 2), dtype=nl.int32, buffer=nl.sbuf)
        nisa.memset(dst=held[:, 0:1], value=3)
        nisa.tensor_scalar(dst=held, data=held, op0=nl.abs, operand0=0, op1=nl.minimum, operand1=1)
        rounds = nisa.register_alloc()
        nisa.register_load(rounds, held[:, 1:2])
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        nisa.memset(dst=done, value=0.0)
        for step in nl.dynamic_range(0, rounds):
            nisa.tensor_copy(dst=done, src=tile)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
