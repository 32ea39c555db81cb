# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Nested comprehensions, walrus, generators, zip and starred."""

import nki
import nki.isa as nisa
import nki.language as nl
from collections import Counter, defaultdict, deque
from itertools import chain, product


def spans(count, width):
    yield from ((k * width, (k + 1) * width) for k in range(count))


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    groups = defaultdict(list)
    for (first, last), row in product(spans(64, 8), (0, 128)):
        groups[row, (k := first // 8) % 4].append((first, last, k))
    counted = Counter(key for key, members in groups.items() for _ in members)
    assert set(counted.values()) == {16} and len({row for row, _ in groups}) == 2
    ring = deque(maxlen=3)
    for (row, turn), members in sorted(groups.items()):
        tiles = [nl.ndarray((128, last - first), dtype=nl.float32, buffer=nl.sbuf) for first, last, _ in members]
        ring.append(tiles)
        for tile, (first, last, _) in zip(ring[-1], members):
            nisa.dma_copy(dst=tile, src=x[row : row + 128, first:last])
            nisa.activation(dst=tile, op=nl.silu, data=tile)
        [nisa.dma_copy(dst=out[row : row + 128, one[0] : one[1]], src=tile) for tile, one in zip(tiles, members)]
    first, *others = chain.from_iterable(groups.values())
    assert first[2] == 0 and len(others) == 127
    return out
