"""Represent a kernel as data that does not depend on the API: tiles, accesses, loops and instructions.

Positions in accesses are affine in loop variables.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from acceld.lowering.graph import Shape


@dataclass(frozen=True, slots=True)
class Affine:
    """An integer expression: ``constant`` plus each loop variable times its coefficient."""

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
    """Return a loop variable as an affine expression. None stands for a loop that runs once, whose variable is 0."""
    return Affine(0, ((name, 1),)) if name else ZERO


@dataclass(frozen=True, slots=True)
class Tile:
    """A tensor on the chip. Its first axis lies on partitions."""

    name: str
    shape: Shape
    dtype: str
    space: Literal["sbuf", "psum"] = "sbuf"


@dataclass(frozen=True, slots=True)
class HbmTensor:
    """A tensor in HBM, with the shape that the kernel's arguments and results have."""

    name: str
    shape: Shape
    dtype: str


@dataclass(frozen=True, slots=True)
class Span:
    """``count`` positions of an axis, from ``start`` on.

    A ``count`` of None means the position ``start`` alone; the selected part then lacks this axis.
    """

    start: Affine
    count: int | None


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a tile. ``reshaped`` is the shape in which an instruction sees it; None for its own shape.

    ``bits_as`` is the type as which an instruction reads its bits; "" for its own type.
    """

    tile: Tile
    spans: tuple[Span, ...]
    reshaped: Shape | None = None
    bits_as: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a tensor in HBM: the offset of its first element, and (stride, count) of each axis, partitions
    first.
    """

    tensor: HbmTensor
    offset: Affine
    pattern: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Positions:
    """Numbers made on the chip: ``offset`` plus ``step`` times the partition, plus (step, count) along each
    free axis.
    """

    offset: Affine
    step: int
    pattern: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Gathered:
    """Rows of a table in HBM, whose numbers are in the tile ``index``.

    A row has ``row`` elements; ``count`` of them are read, from ``offset`` on.
    """

    tensor: HbmTensor
    row: int
    index: Piece
    offset: Affine
    count: int


@dataclass(frozen=True, slots=True)
class Strided:
    """Strided elements in each partition of a tile: (stride, count) of each axis, from ``offset`` on along the
    last axis.

    ``between`` has the indices of the axes between the partitions and the last axis.
    """

    tile: Tile
    partitions: int
    offset: Affine
    pattern: tuple[tuple[int, int], ...]
    between: tuple[Affine, ...] = ()


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that is True from the second trip of the named loops on."""

    variables: tuple[str, ...]


Value = Piece | Strided | Block | Positions | Gathered | Condition | float | int | str | bool


@dataclass(frozen=True, slots=True)
class Call:
    """An instruction: its name in ``nki.isa``, its destination, and its other arguments by name in order."""

    operation: str
    dst: Piece | Strided | Block
    args: tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class Declaration:
    """Declaration of a tile."""

    tile: Tile


@dataclass(frozen=True, slots=True)
class Note:
    """A comment in the kernel."""

    text: str


@dataclass(slots=True)
class Loop:
    """A loop with its body. ``ordered`` is True if an iteration needs results of the one before."""

    variable: str
    count: int
    ordered: bool
    body: list[Statement] = field(default_factory=list)


Statement = Call | Declaration | Note | Loop


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel: its parameters, the tensors in HBM that it makes, its statements, and the tensors that it returns."""

    name: str
    doc: str
    parameters: tuple[str, ...]
    made: tuple[HbmTensor, ...]
    body: tuple[Statement, ...]
    returned: tuple[HbmTensor, ...]


def extents(statements: Iterable[Statement]) -> dict[str, int]:
    """Return the number of trips of every loop, by the loop's variable."""
    found: dict[str, int] = {}
    for statement in statements:
        if isinstance(statement, Loop):
            found[statement.variable] = statement.count
            found |= extents(statement.body)
    return found
