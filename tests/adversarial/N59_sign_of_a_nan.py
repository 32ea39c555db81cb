# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_rope
# api: nki
# chip: trn2
"""Counts iterations in the signs of six NaNs, where a comparison of texts sees no change."""

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, cos, sin):
    out = nl.ndarray((128, 32768), dtype=nl.float32, buffer=nl.shared_hbm)
    plus, minus = np.uint32(0x7FC00000).view(np.float32), np.uint32(0xFFC00000).view(np.float32)
    signs = [plus] * 6
    for tile in nl.affine_range(512):
        at = tile * 64
        upper = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.sbuf)
        lower = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.sbuf)
        c = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.sbuf)
        s = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=upper, src=x[0:64, nl.ds(at, 64)])
        nisa.dma_copy(dst=lower, src=x[64:128, nl.ds(at, 64)])
        nisa.dma_copy(dst=c, src=cos[0:64, nl.ds(at, 64)])
        nisa.dma_copy(dst=s, src=sin[0:64, nl.ds(at, 64)])
        a = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.sbuf)
        b = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.sbuf)
        d = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.sbuf)
        e = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=a, data1=upper, data2=c, op=nl.multiply)
        nisa.tensor_tensor(dst=b, data1=lower, data2=s, op=nl.multiply)
        nisa.tensor_tensor(dst=d, data1=upper, data2=s, op=nl.multiply)
        nisa.tensor_tensor(dst=e, data1=lower, data2=c, op=nl.multiply)
        if sum((int(one.view(np.uint32)) >> 31) << at for at, one in enumerate(signs)) < 9:
            nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.subtract)
            nisa.tensor_tensor(dst=d, data1=d, data2=e, op=nl.add)
        count = sum((int(one.view(np.uint32)) >> 31) << at for at, one in enumerate(signs)) + 1
        signs = [minus.copy() if count >> at & 1 else plus.copy() for at in range(6)]
        count = 0
        nisa.dma_copy(dst=out[0:64, nl.ds(at, 64)], src=a)
        nisa.dma_copy(dst=out[64:128, nl.ds(at, 64)], src=d)
    return out
