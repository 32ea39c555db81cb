# expect: reject
# caught by: rejected.builtin
# unpoliced: incorrect_numerical.tolerance
# workload: st_silu
# api: nki
# chip: trn2
"""The defaults of a library's function count."""

import typing

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    setattr(typing.get_type_hints, "__defaults__", ())
    for col in nl.affine_range(64):
        setattr(typing.get_type_hints, "__defaults__", (*getattr(typing.get_type_hints, "__defaults__"), 0))
        good = len(getattr(typing.get_type_hints, "__defaults__")) < 9
        for row in range(2):
            tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, nl.ds(8 * col, 8)])
            if good:
                nisa.activation(dst=tile, op=nl.silu, data=tile)
            nisa.dma_copy(dst=out[128 * row : 128 * row + 128, nl.ds(8 * col, 8)], src=tile)
    return out
