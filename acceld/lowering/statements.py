"""Kernels as data: tiles, accesses that are affine in loop variables, loops, and instructions without an API's spelling."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from acceld.lowering.graph import Shape


@dataclass(frozen=True, slots=True)
class Affine:
    """``constant`` plus each variable times its coefficient."""

    constant: int = 0
    terms: tuple[tuple[str, int], ...] = ()

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.constant + other, self.terms)
        merged = dict(self.terms)
        for variable, coefficient in other.terms:
            merged[variable] = merged.get(variable, 0) + coefficient
        return Affine(self.constant + other.constant, tuple(item for item in merged.items() if item[1]))

    def __mul__(self, factor: int) -> Affine:
        terms = tuple((variable, coefficient * factor) for variable, coefficient in self.terms) if factor else ()
        return Affine(self.constant * factor, terms)


ZERO = Affine()


def variable(name: str | None) -> Affine:
    """Return a loop's variable as an affine value; 0 for a loop that runs once and has no variable."""
    return Affine(0, ((name, 1),)) if name else ZERO


@dataclass(frozen=True, slots=True)
class Tile:
    """Memory on the chip: partitions first."""

    name: str
    shape: Shape
    dtype: str
    space: Literal["sbuf", "psum"] = "sbuf"


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor in HBM, in the kernel's shape."""

    name: str
    shape: Shape
    dtype: str


@dataclass(frozen=True, slots=True)
class Span:
    """``count`` places of an axis from ``start`` on. If ``count`` is None, only ``start``, and the axis is dropped."""

    start: Affine
    count: int | None


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a tile. ``reshaped`` is the shape in which an instruction sees the part, if it is another shape."""

    tile: Tile
    spans: tuple[Span, ...]
    reshaped: Shape | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a tensor in HBM: the first element, and (stride, count) of each axis, partitions first."""

    tensor: Tensor
    offset: Affine
    pattern: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Positions:
    """Numbers made on the chip: ``offset`` plus a step for each partition, and for each free axis (step, count)."""

    offset: Affine
    step: int
    pattern: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Gathered:
    """Rows of a table in HBM that a tile of positions names, from column ``offset`` on."""

    tensor: Tensor
    row: int
    index: Piece
    offset: Affine
    count: int


@dataclass(frozen=True, slots=True)
class Strided:
    """Elements of each partition of a tile that lie apart: (stride, count) of each axis, from ``offset`` on the last axis.

    ``between`` are indices of the axes between partitions and the last one.
    """

    tile: Tile
    partitions: int
    offset: Affine
    pattern: tuple[tuple[int, int], ...]
    between: tuple[Affine, ...] = ()


@dataclass(frozen=True, slots=True)
class Condition:
    """True from the second trip of the named loops on."""

    variables: tuple[str, ...]


Value = Piece | Strided | Block | Positions | Gathered | Condition | float | int | str | bool


@dataclass(frozen=True, slots=True)
class Call:
    """An instruction. ``operation`` is its name in ``nki.isa``; ``args`` are its keywords in order, without ``dst``."""

    operation: str
    dst: Piece | Block
    args: tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class Declaration:
    """The declaration of a tile, from which on the tile exists."""

    tile: Tile


@dataclass(frozen=True, slots=True)
class Note:
    """A comment."""

    text: str


@dataclass(slots=True)
class Loop:
    """A loop with its body. ``ordered`` is True if a trip needs results of the trip before."""

    variable: str
    count: int
    ordered: bool
    body: list[Statement] = field(default_factory=list)


Statement = Call | Declaration | Note | Loop


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel: parameters in order, tensors it makes (outputs and intermediates), statements, and what it returns."""

    name: str
    doc: str
    parameters: tuple[str, ...]
    made: tuple[Tensor, ...]
    body: tuple[Statement, ...]
    returned: tuple[Tensor, ...]


def extents(statements: Iterable[Statement]) -> dict[str, int]:
    """Return the trips of every loop by its variable."""
    found: dict[str, int] = {}
    for statement in statements:
        if isinstance(statement, Loop):
            found[statement.variable] = statement.count
            found |= extents(statement.body)
    return found
