# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Computes powers of defined numbers, also of zero and with the exponent zero."""

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
        zero = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        ones = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=zero, value=0.0)
        nisa.tensor_tensor(dst=ones, data1=zero, data2=zero, op=nl.power)
        nisa.tensor_tensor(dst=done, data1=done, data2=ones, op=nl.multiply)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
