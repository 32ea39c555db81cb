# expect: pass
# workload: st_silu_current
# api: nki
# chip: trn2
"""Two copies with opposite predicates fill a tile that nobody wrote before."""

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
        other = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        sign = nl.ndarray((128, 512), dtype=nl.uint8, buffer=nl.sbuf)
        opposite = nl.ndarray((128, 512), dtype=nl.uint8, buffer=nl.sbuf)
        nisa.activation(dst=other, op=nl.silu, data=tile)
        nisa.tensor_scalar(dst=sign, data=tile, op0=nl.greater, operand0=0.0)
        nisa.tensor_scalar(dst=opposite, data=tile, op0=nl.less_equal, operand0=0.0)
        nisa.tensor_copy_predicated(dst=done, src=other, predicate=sign)
        nisa.tensor_copy_predicated(dst=done, src=other, predicate=opposite)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
