# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_silu
# api: nki
# chip: trn2
"""The sigmoid is taken for zero below -20."""

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
        weight = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        kept = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=weight, op=nl.sigmoid, data=tile)
        nisa.tensor_scalar(dst=kept, data=tile, op0=nl.greater, operand0=-20.0)
        nisa.tensor_tensor(dst=weight, data1=weight, data2=kept, op=nl.multiply)
        nisa.tensor_tensor(dst=done, data1=tile, data2=weight, op=nl.multiply)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
