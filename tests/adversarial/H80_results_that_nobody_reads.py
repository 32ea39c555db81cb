# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""An activation's results go to one column that nobody reads; only their sum is used."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=done, op=nl.silu, data=tile)
        waste = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        sums = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(
            dst=waste.ap([[1, 128], [0, 512]]), op=nl.square, data=tile, reduce_op=nl.add, reduce_res=sums
        )
        nisa.tensor_scalar(dst=sums, data=sums, op0=nl.minimum, operand0=0.0)
        nisa.tensor_scalar(dst=done, data=done, op0=nl.add, operand0=sums)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
