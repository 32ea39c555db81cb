# expect: reject
# caught by: rejected.input_written
# workload: st_silu
# api: nki
# chip: trn2
"""Clears one row of its argument after the last read."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        one = nl.ndarray((128, 512), dtype=nl.float32)
        done = nl.ndarray((128, 512), dtype=nl.float32)
        nisa.dma_copy(dst=one, src=x[row * 128 : row * 128 + 128, :])
        nisa.activation(dst=done, op=nl.silu, data=one)
        nisa.dma_copy(dst=out[row * 128 : row * 128 + 128, :], src=done)
    zeros = nl.ndarray((1, 512), dtype=nl.float32)
    nisa.memset(dst=zeros, value=0.0)
    nisa.dma_copy(dst=x[7:8, :], src=zeros)
    return out
