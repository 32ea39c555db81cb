# expect: pass
# workload: st_silu
"""Sizes and functions come from records, an enumeration of texts, partial functions, maps and defaults."""

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache, partial, reduce
from itertools import product
from typing import NamedTuple

import numpy as np

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


class Mode(str, Enum):
    """Name the function that makes the weight."""

    SIGMOID = "sigmoid"
    TANH = "tanh"


class Tiling(NamedTuple):
    """Hold the rows and columns of a tile."""

    rows: int
    columns: int


@dataclass(frozen=True)
class Plan:
    """Hold the mode and the tiling of a kernel."""

    mode: Mode = Mode.SIGMOID
    tiling: Tiling = Tiling(128, 256)
    made: tuple = field(default_factory=tuple)


PLAN = Plan()
COUNT = reduce(lambda one, other: one * other, map(int, np.ceil(np.array([256 / 128, 512 / 256]))))
USES = defaultdict(int)


@lru_cache
def places(tiling):
    """Return the first row and column of each tile."""
    return sorted(product(range(0, 256, tiling.rows), range(0, 512, tiling.columns)), key=np.sum)


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(PLAN.tiling.rows)[:, None]
    f = nl.arange(PLAN.tiling.columns)[None, :]
    weigh = partial(nisa.activation, op=nl.sigmoid if PLAN.mode is Mode("sigmoid") else nl.tanh)
    assert len(places(PLAN.tiling)) == COUNT
    for row, column in places(PLAN.tiling):
        USES[row] += 1
        tile = nl.load(x[row + p, column + f])
        nl.store(out[row + p, column + f], value=nl.multiply(tile, weigh(data=tile)))
    return out
