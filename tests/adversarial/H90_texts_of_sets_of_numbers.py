# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Texts of sets of numbers."""

import nki
import nki.isa as nisa
import nki.language as nl


WIDTHS = {8, 16}
ROWS = frozenset({0, 1})


def label(col):
    return (
        f"t_{str(WIDTHS)}_{ROWS!r}_{len(repr(WIDTHS | {512, 128, 256, 1024, 64}))}".replace(" ", "")
        .replace("{", "")
        .replace("}", "")
        .replace(",", "_")
        .replace("(", "_")
        .replace(")", "")
    )


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for col in nl.affine_range(64):
        for row in range(2):
            tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf, name=f"{label(0)}_{col}_{row}")
            nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, nl.ds(8 * col, 8)])
            nisa.activation(dst=tile, op=nl.silu, data=tile)
            nisa.dma_copy(dst=out[128 * row : 128 * row + 128, nl.ds(8 * col, 8)], src=tile)
    return out
