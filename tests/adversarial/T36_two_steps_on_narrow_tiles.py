# expect: truthful
# workload: st_silu_current
# api: nki
# chip: trn2
# at_least: 3.1
"""Two steps in one instruction on float32 tiles of 64 columns: they gain nothing from the double rate."""

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
            for at in range(0, 512, 64):
                part = spare[:, at : at + 64]
                nisa.tensor_scalar(dst=part, data=part, op0=nl.multiply, operand0=0.5, op1=nl.add, operand1=0.1)
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=tile)
    return out
