# expect: pass
# workload: st_softmax
# api: nki
# chip: trn2
"""Columns beyond the row are filled with the least number."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        wide = nl.ndarray((128, 576), dtype=nl.float32, buffer=nl.sbuf)
        most = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=wide[:, 512:576], value=-3.0e38)
        nisa.dma_copy(dst=wide[:, 0:512], src=x[nl.ds(128 * row, 128), :])
        nisa.tensor_reduce(dst=most, op=nl.maximum, data=wide, axis=1, negate=True)
        nisa.activation(dst=wide, op=nl.exp, data=wide, bias=most)
        nisa.tensor_reduce(dst=total, op=nl.add, data=wide, axis=1)
        nisa.reciprocal(dst=total, data=total)
        nisa.activation(dst=wide[:, 0:512], op=nl.copy, data=wide[:, 0:512], scale=total)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=wide[:, 0:512])
    return out
