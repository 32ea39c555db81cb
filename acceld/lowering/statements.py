"""Represent a kernel as data that does not depend on the API: tiles, accesses, loops and instructions.

Positions in accesses are affine expressions of loop variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from acceld.lowering.graph import Shape


@dataclass(frozen=True, slots=True)
class Affine:
    """An integer expression: ``constant`` plus the sum of loop variables times their coefficients."""

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
    """Return the loop variable ``name`` as an affine expression. None is the variable of a loop that runs once; its
    value is 0.
    """
    return Affine(0, ((name, 1),)) if name else ZERO


@dataclass(frozen=True, slots=True)
class Tile:
    """A tensor on the chip. Its first axis is on partitions."""

    name: str
    shape: Shape
    dtype: str
    space: Literal["sbuf", "psum"] = "sbuf"


@dataclass(frozen=True, slots=True)
class HbmTensor:
    """A tensor in HBM: an argument, a result or an intermediate tensor of the kernel, with its shape in the kernel."""

    name: str
    shape: Shape
    dtype: str


@dataclass(frozen=True, slots=True)
class Span:
    """A range of ``count`` positions of an axis, from ``start`` on.

    A ``count`` of None means a single position, ``start``. The selected part then lacks this axis.
    """

    start: Affine
    count: int | None


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a tile, selected by a range for each axis of the tile.

    ``reshaped`` is the shape in which an instruction reads or writes the part; None for the part's own shape. ``bits_as``
    is the dtype as which an instruction reads the part's bits; "" for the tile's dtype.
    """

    tile: Tile
    spans: tuple[Span, ...]
    reshaped: Shape | None = None
    bits_as: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a tensor in HBM, by the offset of its first element and the (stride, count) of each axis.

    The axis of the partitions comes first. Offsets and strides count elements.
    """

    tensor: HbmTensor
    offset: Affine
    pattern: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Positions:
    """Integers that the chip computes from positions: ``offset`` plus ``step`` times the number of the partition, plus
    ``pattern``.

    ``pattern`` has (step, count) for each further axis.
    """

    offset: Affine
    step: int
    pattern: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Gathered:
    """Rows of a table in HBM whose numbers are in ``index``, a piece of a tile.

    A row has ``row`` elements. Of each row, ``count`` elements are read, from element ``offset`` on.
    """

    tensor: HbmTensor
    row: int
    index: Piece
    offset: Affine
    count: int


@dataclass(frozen=True, slots=True)
class Strided:
    """Strided elements in each partition of a tile, along the tile's last axis from ``offset`` on.

    ``pattern`` has (stride, count) for each axis of the elements. ``between`` has an index for each axis of the tile
    between the partitions and the last axis.
    """

    tile: Tile
    partitions: int
    offset: Affine
    pattern: tuple[tuple[int, int], ...]
    between: tuple[Affine, ...] = ()


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that is False while all named loops are in their first trip, and True afterwards."""

    variables: tuple[str, ...]


Value = Piece | Strided | Block | Positions | Gathered | Condition | float | int | str | bool


@dataclass(frozen=True, slots=True)
class Call:
    """An instruction: its name in ``nki.isa``, its destination, and all other arguments with their names, in order."""

    operation: str
    dst: Piece | Strided | Block
    args: tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class Declaration:
    """A declaration of a tile."""

    tile: Tile


@dataclass(frozen=True, slots=True)
class Note:
    """A comment in the kernel."""

    text: str


@dataclass(slots=True)
class Loop:
    """A loop with its body. ``ordered`` is True if an iteration needs results of the previous iteration."""

    variable: str
    count: int
    ordered: bool
    body: list[Statement] = field(default_factory=list)


Statement = Call | Declaration | Note | Loop


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel: its parameters, the HBM tensors that it allocates, its statements, and the tensors that it returns."""

    name: str
    doc: str
    parameters: tuple[str, ...]
    made: tuple[HbmTensor, ...]
    body: tuple[Statement, ...]
    returned: tuple[HbmTensor, ...]
    numbers: tuple[tuple[str, float], ...] = ()
    """Names and values of the parameters that are numbers. The kernel is right for these values alone."""


def extents(statements: Iterable[Statement]) -> dict[str, int]:
    """Return the number of trips of every loop, as a dict by the loop's variable."""
    found: dict[str, int] = {}
    for statement in statements:
        if isinstance(statement, Loop):
            found[statement.variable] = statement.count
            found |= extents(statement.body)
    return found


def calls(statements: Iterable[Statement], trips: int = 1) -> Iterator[tuple[Call, int]]:
    """Yield each instruction in the statements, nested loops included, with the number of times that it runs.

    ``trips`` is the number of times that the statements run.
    """
    for statement in statements:
        if isinstance(statement, Loop):
            yield from calls(statement.body, trips * statement.count)
        elif isinstance(statement, Call):
            yield statement, trips


def rewritten(statements: Iterable[Statement], change: Callable[[Call], list[Statement]]) -> list[Statement]:
    """Return the statements, nested loops included, with the statements that ``change`` returns in place of each
    instruction.
    """
    found: list[Statement] = []
    for statement in statements:
        if isinstance(statement, Loop):
            found.append(replace(statement, body=rewritten(statement.body, change)))
        else:
            found += change(statement) if isinstance(statement, Call) else [statement]
    return found
