# expect: reject
# caught by: runtime_error.overlap
# workload: st_silu
# api: nki
# chip: trn2
"""Roots of numbers of half the width are written as words, one word before the numbers that they are taken from."""

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
        small = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=small.view(nl.bfloat16), value=1.0)
        nisa.activation(dst=small[:, 0:510], op=nl.sqrt, data=small.view(nl.bfloat16)[:, 3:1023:2])
        nisa.tensor_tensor(dst=tile[:, 0:510], data1=tile[:, 0:510], data2=small[:, 0:510], op=nl.multiply)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=tile)
    return out
