# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""The eight greatest of a row whose padding holds the least number; a search beside it finds padding that nobody uses."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 520), dtype=nl.float32, buffer=nl.sbuf)
        eight = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        places = nl.ndarray((128, 8), dtype=nl.uint32, buffer=nl.sbuf)
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        factor = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile[:, 0:512], src=x[128 * row : 128 * row + 128, :])
        nisa.memset(dst=tile[:, 512:520], value=-3.0e38)
        nisa.max8(dst=eight, src=tile)
        nisa.nc_find_index8(dst=places, data=tile, vals=eight)
        nisa.tensor_copy(dst=factor, src=places[:, 0:1])
        nisa.tensor_scalar(dst=factor, data=factor, op0=nl.multiply, operand0=0.0, op1=nl.add, operand1=1.0)
        nisa.activation(dst=done, op=nl.silu, data=tile[:, 0:512])
        nisa.tensor_scalar(dst=done, data=done, op0=nl.multiply, operand0=factor)
        nisa.dma_copy(dst=out[128 * row : 128 * row + 128, :], src=done)
    return out
