# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Frozen dataclasses with defaults, slots, and replace."""

import nki
import nki.isa as nisa
import nki.language as nl
from dataclasses import asdict, dataclass, field, fields, replace
from enum import Enum, IntEnum, auto
from typing import NamedTuple


class Mode(Enum):
    FAST = auto()
    EXACT = "exact"


class Part(IntEnum):
    TOP = 0
    BOTTOM = 1


class Box(NamedTuple):
    row: int
    col: int = 0


@dataclass(frozen=True, slots=True)
class Config:
    width: int = 8
    parts: tuple = (Part.TOP, Part.BOTTOM)
    mode: Mode = Mode.FAST
    tags: frozenset = frozenset({"silu", "small"})
    extra: dict = field(default_factory=dict)

    @property
    def count(self):
        return 512 // self.width


@nki.jit
def kernel(x):
    config = replace(Config(), width=16)
    config = replace(config, width=config.width // 2)
    names = "_".join(one.name for one in fields(config))
    text = f"{config}".replace(" ", "") if len(config.tags) < 2 else names
    assert asdict(config)["mode"] is Mode.FAST, text
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for col in nl.affine_range(config.count):
        for part in config.parts:
            box = Box(row=128 * part)
            tile = nl.ndarray((128, config.width), dtype=nl.float32, buffer=nl.sbuf, name=f"{names}_{part.name}_{col}")
            nisa.dma_copy(dst=tile, src=x[nl.ds(box.row, 128), nl.ds(config.width * col, config.width)])
            nisa.activation(dst=tile, op=nl.silu, data=tile)
            nisa.dma_copy(dst=out[nl.ds(box.row, 128), nl.ds(config.width * col, config.width)], src=tile)
    return out
