# expect: truthful
# workload: st_silu_current
# api: nki
# chip: trn2
# at_least: 2.6
"""Float32 tiles of 100 columns: 124 cycles are added to the columns, as for wider tiles."""

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
            for at in range(0, 500, 100):
                part = spare[:, at : at + 100]
                nisa.tensor_scalar(dst=part, data=part, op0=nl.multiply, operand0=0.5)
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=tile)
    return out
