# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Iterators of itertools, functions of operator and functools."""

import nki
import nki.isa as nisa
import nki.language as nl
import operator
from functools import reduce
from itertools import (
    accumulate,
    chain,
    combinations,
    count,
    groupby,
    islice,
    pairwise,
    repeat,
    starmap,
    takewhile,
    zip_longest,
)


@nki.jit
def kernel(x):
    pairs = list(zip_longest("ab", [1], fillvalue=0)) + list(combinations(range(3), 2)) + list(pairwise([1, 2, 3]))
    assert (
        pairs[1] == ("b", 0)
        and list(accumulate([1, 2, 3], operator.mul)) == [1, 2, 6]
        and list(islice(count(3), 2)) == [3, 4]
    )
    assert reduce(operator.add, [[1], [2]]) == [1, 2] and sorted([(2, "a"), (1, "b")], key=operator.itemgetter(0))[
        0
    ] == (1, "b")
    assert {key: len(list(group)) for key, group in groupby("aabbb")} == {"a": 2, "b": 3}
    assert list(starmap(max, [(1, 2), (4, 3)])) == [2, 4] and list(takewhile(lambda n: n < 3, range(9))) == [0, 1, 2]
    assert list(chain([1], [2])) == [1, 2] and [*repeat(1, 2)] == [1, 1] and list(filter(None, [0, 1])) == [1]
    assert list(map(str, [1, 2])) == ["1", "2"] and next(iter({7})) == 7 and dict(zip("ab", range(2)))["b"] == 1
    assert operator.pow(2, 3) == 8 and operator.abs(-1) == 1
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for col in nl.affine_range(64):
        for row in range(2):
            tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, nl.ds(8 * col, 8)])
            nisa.activation(dst=tile, op=nl.silu, data=tile)
            nisa.dma_copy(dst=out[128 * row : 128 * row + 128, nl.ds(8 * col, 8)], src=tile)
    return out
