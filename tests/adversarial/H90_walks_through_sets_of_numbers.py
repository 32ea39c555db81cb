# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Unions, differences and keys of whole numbers."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    odd = {k * 24 % 512 for k in range(0, 64, 2)}
    table = {k * 8: k for k in range(64)}
    done = set()
    rest = table.keys() - odd
    done |= odd & table.keys()
    done.update(rest)
    done = done.union(range(0, 512, 8)) - {512}
    for at in done:
        for row in range(2):
            tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, nl.ds(at, 8)])
            nisa.activation(dst=tile, op=nl.silu, data=tile)
            nisa.dma_copy(dst=out[128 * row : 128 * row + 128, nl.ds(at, 8)], src=tile)
    return out
