# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Tiles come from a ring and go back to it."""

from collections import deque

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    ring = deque(nl.ndarray((32, 512), dtype=nl.float32, buffer=nl.sbuf) for _ in range(3))
    waiting = deque()
    for at in range(0, 256, 32):
        tile = ring.popleft()
        nisa.dma_copy(dst=tile, src=x[at : at + 32, :])
        waiting.append((at, tile))
        if len(waiting) == 2 or at == 224:
            while waiting:
                place, held = waiting.popleft()
                nisa.activation(dst=held, op=nl.silu, data=held)
                nisa.dma_copy(dst=out[place : place + 32, :], src=held)
                ring.append(held)
    return out
