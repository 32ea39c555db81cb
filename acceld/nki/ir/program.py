"""Define the program (schema v1), the result of tracing a kernel.

A :class:`Program` is plain data: buffers, and a tree of loops and instructions. The operands of instructions
are strided accesses, affine in the loop variables. A program holds no callables and no input data. So code that
never saw the kernel can receive the program from another process (:mod:`acceld.nki.ir.codec`), verify, execute,
time and hash it.

Conventions

* A loop variable counts iterations, ``0 .. trips-1``; a front end includes ``start`` and ``step`` in the affine
  expressions. Loop ids are unique in a program, also among sibling loops.
* An on-chip buffer has shape ``(block..., partitions, free...)``, and ``partition_axis`` is the number of the
  partition dimension. An HBM buffer has ``partition_axis == -1``.
* The ``dims`` of an :class:`Access` are the axes of the accessed tile. For on-chip operands the first axis is the
  partition axis (count 1 for a single partition). Tiles in HBM have the axes of their on-chip counterpart.
* ``line`` is the 1-based line of the kernel's file; 0 if no line is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import prod

SCHEMA_VERSION = 1
MAX_INSTRUCTIONS = 1_000_000
"""Greatest number of instruction nodes of a program; the body of a loop counts once."""


class Space(StrEnum):
    """The memory that holds a buffer."""

    HBM = "hbm"
    SBUF = "sbuf"
    PSUM = "psum"


class Engine(StrEnum):
    """The engine that runs an instruction. For ``UNKNOWN`` the performance model chooses an engine."""

    TENSOR = "tensor"
    VECTOR = "vector"
    SCALAR = "scalar"
    GPSIMD = "gpsimd"
    DMA = "dma"
    SYNC = "sync"
    UNKNOWN = "unknown"


class Role(StrEnum):
    """The role of a buffer for the kernel's caller."""

    INPUT = "input"
    OUTPUT = "output"
    CONSTANT = "constant"
    SCRATCH = "scratch"


class LoopKind(StrEnum):
    """The kind of a loop: how its iterations depend on each other, and how the number of iterations is given.

    * ``AFFINE``: the iterations are independent and may run in any order.
    * ``SEQUENTIAL``: an iteration may pass values to the next one.
    * ``SPMD``: the loop is one axis of the launch grid.
    * ``DYNAMIC``: register ``trips_register`` holds the number of iterations at run time; ``trips`` is the greatest
      possible number.
    * ``WHILE``: the loop runs while register ``trips_register`` is not 0, which is tested before each iteration.
    """

    AFFINE = "affine"
    SEQUENTIAL = "sequential"
    SPMD = "spmd"
    DYNAMIC = "dynamic"
    WHILE = "while"


RUN_TIME = frozenset({LoopKind.DYNAMIC, LoopKind.WHILE})
"""Loops whose number of iterations is known only at run time."""


@dataclass(frozen=True, slots=True)
class Affine:
    """The integer ``const + sum(coef * loop variable)``.

    ``terms`` holds pairs (loop id, coef), sorted by loop id. Terms with the coefficient 0 are left out.
    """

    const: int = 0
    terms: tuple[tuple[int, int], ...] = ()

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.const + other, self.terms) if other else self
        if not other.terms:
            return Affine(self.const + other.const, self.terms) if other.const else self
        if not self.terms:
            return Affine(self.const + other.const, other.terms)
        sums = dict(self.terms)
        for loop, coef in other.terms:
            sums[loop] = sums.get(loop, 0) + coef
        return Affine(self.const + other.const, tuple(sorted((i, c) for i, c in sums.items() if c)))

    def scale(self, factor: int) -> Affine:
        """Return the expression times ``factor``."""
        if factor == 0:
            return Affine()
        if not self.terms:
            return Affine(self.const * factor)
        return Affine(self.const * factor, tuple([(loop, coef * factor) for loop, coef in self.terms]))

    def at(self, env: Mapping[int, int]) -> int:
        """Return the value in iteration ``env[i]`` of each loop ``i``. Raise KeyError if ``env`` lacks a loop
        of the expression.
        """
        value = self.const
        for loop, coef in self.terms:
            value += coef * env[loop]
        return value

    def bounds(self, trips: Mapping[int, int]) -> tuple[int, int]:
        """Return the least and the greatest value over all iterations. ``trips`` gives the number of iterations
        by loop id.
        """
        low = high = self.const
        for loop, coef in self.terms:
            reach = coef * max(0, trips[loop] - 1)
            low, high = low + min(0, reach), high + max(0, reach)
        return low, high


@dataclass(frozen=True, slots=True)
class TileDim:
    """One axis of a tile, with ``count`` elements. One step along the axis moves by ``steps[d]`` in buffer
    dimension ``d``.
    """

    count: int
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Indirect:
    """A run-time index of an access: its value times ``scale`` is added to the start in buffer dimension
    ``dim``.

    The value comes from the scalar register ``register``, or from the tile of integers ``index``. The tile has
    one integer for each element along axis ``axis`` of the access.
    """

    dim: int
    scale: int = 1
    register: int | None = None
    index: Access | None = None
    axis: int = 0

    def __post_init__(self) -> None:
        if (self.register is None) == (self.index is None):
            raise ValueError("an indirect index needs a register or a tile of indices: give exactly one of them")


@dataclass(frozen=True, slots=True)
class Access:
    """A strided tile of a buffer.

    ``start`` has one affine expression for each buffer dimension, and ``dims`` has one entry for each axis of
    the tile. In buffer dimension ``d``, element ``(i0, i1, ...)`` of the tile has the index ``start[d] +
    sum(i_k * dims[k].steps[d])``. If ``dtype`` is not empty, the bits are read as that type, which has the same
    width.
    """

    buffer: int
    start: tuple[Affine, ...]
    dims: tuple[TileDim, ...]
    indirect: tuple[Indirect, ...] = ()
    dtype: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of elements along each axis of the tile."""
        return tuple([dim.count for dim in self.dims])

    @property
    def elements(self) -> int:
        """Return the number of elements in the tile."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Pattern:
    """An affine value at each point of an instruction's iteration space: ``base + sum(coefs[k] * i_k)``.

    A mask includes the points where the value is >= 0. ``iota`` writes the value. ``affine_select`` compares
    the value with zero. :mod:`acceld.nki.ir.operations` defines the iteration space of each operation.
    """

    base: Affine
    coefs: tuple[int, ...]


Operand = Access | float | int | Pattern
"""A tile, an immediate number, or an affine value of the loop variables."""

Attr = str | int | float | bool | tuple[int, ...] | tuple[str, ...] | None
"""Values that an attribute of an instruction may have."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One operation of :data:`acceld.nki.ir.operations.OPS` with its operands.

    ``mask`` holds patterns over the operation's iteration space. An element that any pattern excludes is neither
    computed nor written. ``place`` lists, innermost first, the calls in files other than the kernel's own that made the
    instruction; ``place`` is empty if the kernel's own file made the instruction.
    """

    op: str
    engine: Engine
    dsts: tuple[Access, ...]
    srcs: tuple[Operand, ...] = ()
    attrs: tuple[tuple[str, Attr], ...] = ()
    mask: tuple[Pattern, ...] = ()
    pattern: Pattern | None = None
    line: int = 0
    place: str = ""

    def attr(self, name: str, default: Attr = None) -> Attr:
        """Return the value of the attribute ``name``; ``default`` if the instruction has no such attribute."""
        for key, value in self.attrs:
            if key == name:
                return value
        return default

    @property
    def accesses(self) -> tuple[Access, ...]:
        """Return every tile that the instruction reads or writes: sources first, then destinations."""
        return (*[src for src in self.srcs if isinstance(src, Access)], *self.dsts)


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop of a program. Its body stands for all ``trips`` iterations."""

    id: int
    name: str
    trips: int
    kind: LoopKind
    body: tuple[Node, ...]
    line: int = 0
    trips_register: int | None = None

    @property
    def at_run_time(self) -> bool:
        """Tell whether the number of iterations is known only at run time."""
        return self.kind in RUN_TIME


Node = Loop | Instruction


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor in HBM, SBUF or PSUM.

    * ``scope``: ids of the loops around the declaration, outermost first. Each iteration of these loops has a new,
      undefined instance of the buffer.
    * ``address``: (start partition, byte offset) if the kernel chooses the address.
    * ``blocks``: the address of each tile, in C order, for a buffer with dimensions before the partition axis.
    * ``data``: the contents of a constant as bytes in C order.
    * ``written_input``: True for an input that the kernel may write.
    * ``argument_shape``: the shape of the caller's array if that differs from ``shape`` (same elements in C order).
    * ``place``: the calls in other files that declared the buffer, as in :class:`Instruction`.
    """

    id: int
    name: str
    space: Space
    dtype: str
    shape: tuple[int, ...]
    partition_axis: int = -1
    role: Role = Role.SCRATCH
    scope: tuple[int, ...] = ()
    line: int = 0
    address: tuple[int, int] | None = None
    data: bytes | None = field(default=None, repr=False)
    written_input: bool = False
    argument_shape: tuple[int, ...] | None = None
    place: str = ""
    blocks: tuple[tuple[int, int], ...] = ()

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """Return the address of each of the buffer's tiles; () if the compiler chooses the addresses."""
        return self.blocks if self.address is None else (self.address,)

    @property
    def outer_shape(self) -> tuple[int, ...]:
        """Return the shape of the caller's array."""
        return self.shape if self.argument_shape is None else self.argument_shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Return the number of elements between neighbors along each dimension, in C order."""
        strides, step = [], 1
        for size in reversed(self.shape):
            strides.append(step)
            step *= size
        return tuple(reversed(strides))

    @property
    def elements(self) -> int:
        """Return the number of elements in the buffer."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Notice:
    """A remark of a front end on one line of the kernel that is legal but costly or deprecated."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Program:
    """A traced kernel for one chip, API, launch grid and set of argument shapes.

    ``inputs`` and ``outputs`` are buffer ids in the order of the kernel's arguments and results. A buffer's id
    is its position in ``buffers``. An input that the kernel updates in place and returns is in both lists.
    ``registers`` is the number of scalar registers that the program uses.
    """

    api: str
    chip: str
    entry: str
    buffers: tuple[Buffer, ...]
    body: tuple[Node, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    grid: tuple[int, ...] = ()
    lnc: int = 1
    registers: int = 0
    notices: tuple[Notice, ...] = ()
    schema: int = SCHEMA_VERSION

    def walk(self) -> Iterator[tuple[Instruction, tuple[Loop, ...]]]:
        """Yield each instruction once, in program order, with the loops around it, outermost first."""
        yield from _walk(self.body, ())

    @property
    def loops(self) -> dict[int, Loop]:
        """Return all loops by id."""
        return {loop.id: loop for loop in _loops(self.body)}


def _walk(body: tuple[Node, ...], outer: tuple[Loop, ...]) -> Iterator[tuple[Instruction, tuple[Loop, ...]]]:
    for node in body:
        if isinstance(node, Loop):
            yield from _walk(node.body, (*outer, node))
        else:
            yield node, outer


def _loops(body: tuple[Node, ...]) -> Iterator[Loop]:
    for node in body:
        if isinstance(node, Loop):
            yield node
            yield from _loops(node.body)
