# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_silu
# api: nki
# chip: trn2
"""The bits of each result, as a whole number, plus one and minus one: no engine that a tensor_scalar names has so many digits."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        bits = tile.view(nl.int32)
        nisa.tensor_scalar(dst=bits, data=bits, op0=nl.add, operand0=1)
        nisa.tensor_scalar(dst=bits, data=bits, op0=nl.subtract, operand0=1)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=tile)
    return out
