# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Copies of sets, frozen sets as keys, sets in sets, set methods on the type."""

import nki
import nki.isa as nisa
import nki.language as nl
from copy import copy, deepcopy


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    groups = {frozenset({0, 8, 16}): "a", frozenset(range(24, 512, 8)): "b"}
    seen = set()
    for group in groups:
        more = copy(seen)
        more |= group
        seen = deepcopy(more)
    seen = set.union(seen, {0}).copy()
    seen ^= {512, 520}
    seen.discard(512)
    seen -= {520}
    seen = frozenset(seen).difference([])
    for at in seen:
        for row in sorted({1, 0}):
            tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, nl.ds(at, 8)])
            nisa.activation(dst=tile, op=nl.silu, data=tile)
            nisa.dma_copy(dst=out[128 * row : 128 * row + 128, nl.ds(at, 8)], src=tile)
    return out
