# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Whole numbers of padded rows, which nobody wrote, are compared and choose; the padded rows are not stored."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for at in range(0, 256, 96):
        rows = min(96, 256 - at)
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        whole = nl.ndarray((128, 512), dtype=nl.int32, buffer=nl.sbuf)
        pick = nl.ndarray((128, 512), dtype=nl.uint8, buffer=nl.sbuf)
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        weight = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile[0:rows, :], src=x[at : at + rows, :])
        nisa.tensor_copy(dst=whole[0:rows, :], src=tile[0:rows, :])
        nisa.tensor_scalar(dst=pick, data=whole, op0=nl.equal, operand0=0)
        nisa.activation(dst=done, op=nl.silu, data=tile)
        nisa.activation(dst=weight, op=nl.sigmoid, data=tile)
        nisa.tensor_tensor(dst=weight, data1=weight, data2=tile, op=nl.multiply)
        nisa.tensor_copy_predicated(dst=done, src=weight, predicate=pick)
        nisa.dma_copy(dst=out[at : at + rows, :], src=done[0:rows, :])
    return out
