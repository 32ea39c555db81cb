# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
# api: nki
# chip: trn2
"""A whole number that was never written, at most one, moves the columns that are copied."""

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
        held = nl.ndarray((1, 8), dtype=nl.int32, buffer=nl.sbuf)
        index = nl.ndarray((1, 2), dtype=nl.int32, buffer=nl.sbuf)
        nisa.memset(dst=held[:, 0:7], value=3)
        nisa.tensor_scalar(dst=index, data=held[:, 6:8], op0=nl.abs, operand0=0, op1=nl.minimum, operand1=1)
        nisa.tensor_scalar(dst=index, data=index, op0=nl.multiply, operand0=-64, op1=nl.add, operand1=64)
        part = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(
            dst=part,
            src=x.ap(
                pattern=[[512, 128], [1, 64]], offset=128 * 512 * row, scalar_offset=index[:, 1:2], indirect_dim=1
            ),
        )
        nisa.activation(dst=done[:, 0:64], op=nl.silu, data=part)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
