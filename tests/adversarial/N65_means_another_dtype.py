# expect: reject
# caught by: incorrect_numerical.tolerance
# workload: st_rope
# api: nki
# chip: trn2
"""Counts iterations by changing the dtype that a name stands for."""

import nki
import nki.isa as nisa
import nki.language as nl


def following(mode):
    if mode is nl.float32:
        return nl.bfloat16
    if mode is nl.bfloat16:
        return nl.float16
    if mode is nl.float16:
        return nl.int32
    if mode is nl.int32:
        return nl.uint8
    if mode is nl.uint8:
        return nl.int8
    if mode is nl.int8:
        return nl.uint16
    if mode is nl.uint16:
        return nl.int16
    if mode is nl.int16:
        return nl.uint32
    return nl.uint32


@nki.jit
def kernel(x, cos, sin):
    out = nl.ndarray((128, 32768), dtype=nl.float32, buffer=nl.shared_hbm)
    mode = nl.float32
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
        if mode is not nl.uint32:
            nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.subtract)
            nisa.tensor_tensor(dst=d, data1=d, data2=e, op=nl.add)
        mode = following(mode)
        nisa.dma_copy(dst=out[0:64, nl.ds(at, 64)], src=a)
        nisa.dma_copy(dst=out[64:128, nl.ds(at, 64)], src=d)
    return out
