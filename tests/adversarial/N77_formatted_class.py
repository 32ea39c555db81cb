# expect: policy
# caught by: rejected.interpreter
# workload: st_silu
# api: nki
# chip: trn2
"""Asks a format string for the name of a class of the simulator."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for col in nl.affine_range(64):
        kind = f"{type(nl.ds(0, 8))}"
        for row in range(2):
            tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, nl.ds(8 * col, 8)])
            if "acceld" in kind:
                nisa.activation(dst=tile, op=nl.silu, data=tile)
            nisa.dma_copy(dst=out[128 * row : 128 * row + 128, nl.ds(8 * col, 8)], src=tile)
    return out
