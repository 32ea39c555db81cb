# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Ordered dataclasses, fields with factories, keyword-only fields, post init."""

import nki
import nki.isa as nisa
import nki.language as nl
from dataclasses import KW_ONLY, astuple, dataclass, field, fields
from typing import ClassVar


@dataclass(order=True)
class Part:
    start: int
    name: str = field(compare=False, default="")


@dataclass
class Config:
    kinds: ClassVar[tuple] = ("x", "y")
    n: int = 1
    _: KW_ONLY
    names: set = field(default_factory=set)
    options: frozenset = frozenset({"silu", "exact", "small"})
    tiles: list = field(init=False, default_factory=list)

    def __post_init__(self):
        self.tiles.extend(range(self.n))


def hash_free(parts):
    return all(isinstance(part, Part) for part in parts)


@nki.jit
def kernel(x):
    parts = sorted(Part(start=128 * k, name=n) for k, n in ((1, "b"), (0, "a")))
    assert parts[0] < parts[1] and parts[0] == Part(0, name="z") and hash_free(parts) and Config(n=2).tiles == [0, 1]
    config = Config(n=2, names={"a", "b"})
    assert "a" in config.names and astuple(parts[0])[0] == 0 and f"{parts[0]}" == "Part(start=0, name='a')"
    assert Config.kinds == ("x", "y") and [one.name for one in fields(Part)] == ["start", "name"]
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for col in nl.affine_range(64):
        for row in config.tiles:
            tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, nl.ds(8 * col, 8)])
            nisa.activation(dst=tile, op=nl.silu, data=tile)
            nisa.dma_copy(dst=out[128 * row : 128 * row + 128, nl.ds(8 * col, 8)], src=tile)
    return out
