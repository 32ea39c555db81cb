# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""A cached helper with values that can not change."""

import functools

import nki
import nki.isa as nisa
import nki.language as nl


@functools.cache
def width(parts):
    return 128 // parts


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    pass
    for tile in nl.affine_range(128):
        at = tile * 64
        row, column = tile // 64, tile % 64
        data = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        done = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=data, src=x[nl.ds(128 * row, 128), nl.ds(8 * column, 8)])
        pass
        if width(2) == 64:
            nisa.activation(dst=done, op=nl.silu, data=data)
        else:
            nisa.memset(dst=done, value=0.0)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), nl.ds(8 * column, 8)], src=done)
    return out
