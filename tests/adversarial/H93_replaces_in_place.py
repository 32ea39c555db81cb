# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""The eight greatest are replaced in place, and the next eight are not greater."""

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
        best = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        copy = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        second = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        places = nl.ndarray((128, 8), dtype=nl.uint32, buffer=nl.sbuf)
        least = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=copy, src=done)
        nisa.max8(dst=best, src=copy)
        nisa.nc_match_replace8(dst=copy, data=copy, vals=best, imm=-1e30, dst_idx=places)
        nisa.max8(dst=second, src=copy)
        nisa.tensor_tensor(dst=least, data1=best[:, 7:8], data2=second[:, 0:1], op=nl.greater_equal)
        nisa.tensor_scalar(dst=done, data=done, op0=nl.multiply, operand0=least)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
