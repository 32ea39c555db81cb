# expect: truthful
# workload: st_silu_current
# api: nki
# chip: trn2
# at_least: 4.5
"""A product and an inverse root in one instruction of the vector engine: no faster than on GpSimd."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        spare = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        nisa.activation(dst=spare, op=nl.exp, data=tile)
        for _ in range(20):
            nisa.tensor_scalar(
                dst=spare,
                data=spare,
                op0=nl.multiply,
                operand0=2.0,
                op1=nl.rsqrt,
                operand1=0.0,
                engine=nisa.vector_engine,
            )
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=tile)
    return out
