# expect: pass
# workload: st_rope
# api: nki
# chip: trn2
"""Names of functions, types and engines stay the same in a long loop, and limits of a type are asked for in each iteration."""

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl


def chosen(exact):
    return (nl.subtract, nl.add, nisa.vector_engine) if exact else (nl.add, nl.subtract, nisa.gpsimd_engine)


@nki.jit
def kernel(x, cos, sin):
    out = nl.ndarray((128, 32768), dtype=nl.float32, buffer=nl.shared_hbm)
    wide = nl.float32
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
        minus, plus, engine = chosen(np.finfo(np.float32).bits == 32 and wide is nl.float32)
        nisa.tensor_tensor(dst=a, data1=a, data2=b, op=minus, engine=engine)
        nisa.tensor_tensor(dst=d, data1=d, data2=e, op=plus, engine=engine)
        nisa.dma_copy(dst=out[0:64, nl.ds(at, 64)], src=a)
        nisa.dma_copy(dst=out[64:128, nl.ds(at, 64)], src=d)
    return out
