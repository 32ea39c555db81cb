# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Sets of supported dtypes and of numbers as module constants."""

import nki
import nki.isa as nisa
import nki.language as nl

SUPPORTED = {nl.float32, nl.bfloat16}
WIDTHS = {8, 16, 32}
NAMES = {"silu", "gelu"}


def pick(width, seen):
    assert width in WIDTHS and "silu" in NAMES, f"one of {sorted(WIDTHS)}"
    seen.add(width)
    return max(w for w in WIDTHS if w <= 8)


@nki.jit
def kernel(x):
    assert x.dtype in SUPPORTED
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    seen = set()
    for col in nl.affine_range(64):
        width = pick(8, seen)
        for row in range(2):
            tile = nl.ndarray((128, width), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, nl.ds(8 * col, 8)])
            nisa.activation(dst=tile, op=nl.silu, data=tile)
            nisa.dma_copy(dst=out[128 * row : 128 * row + 128, nl.ds(8 * col, 8)], src=tile)
    return out
