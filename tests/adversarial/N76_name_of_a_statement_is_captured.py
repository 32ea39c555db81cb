# expect: reject
# caught by: rejected.dunder
# unpoliced: incorrect_numerical.tolerance
# workload: st_silu
# api: nki
# chip: trn2
"""A pattern captures a function under such a name."""

import nki
import nki.isa as nisa
import nki.language as nl


def is_text(pair):
    match pair:
        case [one, __acceld_plain__]:
            return isinstance(one, str)
    return False


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for col in nl.affine_range(64):
        for row in range(2):
            tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, nl.ds(8 * col, 8)])
            if is_text([3, lambda *v: ""]):
                nisa.activation(dst=tile, op=nl.silu, data=tile)
            nisa.dma_copy(dst=out[128 * row : 128 * row + 128, nl.ds(8 * col, 8)], src=tile)
    return out
