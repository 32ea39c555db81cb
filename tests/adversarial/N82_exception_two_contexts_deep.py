# expect: reject
# caught by: rejected.try
# unpoliced: incorrect_numerical.tolerance
# workload: st_silu
# api: nki
# chip: trn2
"""The context of the context of a new exception counts."""

import nki
import nki.isa as nisa
import nki.language as nl


class Box(Exception):
    n = 0


def again():
    try:
        raise KeyError
    except KeyError:
        return step()


def step():
    try:
        raise ValueError
    except ValueError as error:
        box = getattr(getattr(error, "__context__"), "__context__")
        box.n += 1
        return box.n < 9


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    try:
        raise Box
    except Box:
        return inner(x, out)


def inner(x, out):
    for col in nl.affine_range(64):
        good = again()
        for row in range(2):
            tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, nl.ds(8 * col, 8)])
            if good:
                nisa.activation(dst=tile, op=nl.silu, data=tile)
            nisa.dma_copy(dst=out[128 * row : 128 * row + 128, nl.ds(8 * col, 8)], src=tile)
    return out
