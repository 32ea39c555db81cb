# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
# api: nki
# chip: trn2
"""Whole numbers of a tile that was never written: the bit for 1024 is read."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        factor = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        nisa.activation(dst=done, op=nl.silu, data=tile)
        some = nl.ndarray((128, 2), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=some[:, 0:1], value=1.0)
        levels = nl.ndarray((128, 2), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.activation(dst=some, op=nl.abs, data=some)
        nisa.tensor_copy(dst=levels, src=some)
        bits = levels[:, 1:2]
        nisa.tensor_scalar(dst=bits, data=bits, op0=nl.bitwise_and, operand0=1024)
        nisa.tensor_copy(dst=factor, src=bits)
        nisa.tensor_scalar(dst=factor, data=factor, op0=nl.add, operand0=1.0)
        nisa.tensor_scalar(dst=done, data=done, op0=nl.multiply, operand0=factor)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
