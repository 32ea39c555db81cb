"""Find reads of a tile that another tile at the same address has overwritten.

The executions of instructions are followed in program order. An execution that writes a tile overwrites the other tiles
at the same address. A finding is a read of a part of a tile that another tile has overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd, prod

import numpy as np

from acceld.nki.ir.def_use import Use, uses_of
from acceld.nki.ir.numerics import Array
from acceld.nki.ir.operations import DTYPE_BYTES
from acceld.nki.ir.places import rectangles, sharing
from acceld.nki.ir.program import Access, Instruction, Loop, LoopKind, Node, Pattern
from acceld.nki.ir.spaces import iteration_space
from acceld.nki.verify.findings import Report

RULE = "overlapping_lives"
MOST_EXECUTIONS = 400_000
"""Greatest number of executions of instructions that are followed. Later executions are not examined."""
_HINT = "give tiles that are in use at the same time addresses apart, or read the one before the other is written"

_MOST_MASKED = 1 << 22
"""Greatest number of elements of a tile for which a mask is computed. In a larger tile the mask is ignored."""
_MOST_SUMS = 1 << 24

Env = dict[int, int]
_Span = tuple[int, int]
_Parts = tuple[Array, Array | slice, Array | slice]
"""The owner of each part of a memory, with the rows and the columns of the parts that one access reaches."""


@dataclass(frozen=True, slots=True)
class _Touch:
    """An instruction's access to a tile with an address.

    Rows (partitions) and columns (bytes) are counted from the start of the access.
    """

    use: Use
    axes: tuple[int, ...] | None
    blocks: Array
    rows: Array
    columns: Array
    cells: tuple[Array, Array] | None
    """Row and column of each element of the tile; None if the instruction has no mask."""


class Lives:
    """Follow the executions of the instructions that touch tiles with a common address, to find reads of overwritten
    data. The unit is a *part*: each memory is divided into parts of equal size.
    """

    def __init__(self, report: Report) -> None:
        self.report, self.program = report, report.program
        self.tiles = {number: rectangles(self.program.buffers[number]) for number in sharing(self.program)}
        self.left = MOST_EXECUTIONS
        self.owners: dict[tuple[str, int], Array] = {}
        """The number of the tile that last wrote each part, by memory and core; 0 if no tile wrote the part."""
        self.numbers: dict[tuple[int, int, int], tuple[tuple[int, ...], int]] = {}
        """The current iteration of the loops around a declaration, and the number of the tile that the declaration made
        in that iteration, by buffer, block and core.
        """
        self.current: set[int] = set()
        """Numbers of the tiles that are in scope."""
        self.lost: dict[int, set[tuple[_Span, _Span]]] = {}
        """The parts of a tile that other tiles have overwritten, by the tile's number."""
        self.named: list[tuple[int, int]] = [(0, 0)]
        """The buffer of a tile and the line that last wrote the tile, by the tile's number."""
        self.core = 0

    def check(self) -> None:
        """Add a finding for each instruction that reads a tile after another tile has overwritten the tile."""
        if not self.tiles:
            return
        self._measure()
        lone = 0
        for node in self.program.body:
            env: Env = {}
            shared = isinstance(node, Loop) and node.kind is LoopKind.SPMD and self.program.lnc > 1
            if shared and isinstance(node, Loop) and node.trips == 1:
                self.core, lone = lone % self.program.lnc, lone + 1
            run = self._compiled(node, (), per_core=shared)
            if run is not None:
                run(env)

    def _measure(self) -> None:
        """Choose the size of a part, in rows and columns, so that each tile and each access consists of whole
        parts.
        """
        rows, columns = 0, 0
        for number, tiles in self.tiles.items():
            for one in tiles:
                rows, columns = gcd(rows, one.top, one.bottom), gcd(columns, one.begin, one.end)
            columns = gcd(columns, DTYPE_BYTES[self.program.buffers[number].dtype])
        for node, loops in self.program.walk():
            for use in uses_of(node, loops):
                if use.access.buffer in self.tiles:
                    axis = self.program.buffers[use.access.buffer].partition_axis
                    start = use.access.start[axis]
                    steps = [step for dim in use.access.dims if (step := dim.steps[axis]) and dim.count > 1]
                    if steps == [1]:  # consecutive partitions can be joined into one part
                        steps = [next(dim.count for dim in use.access.dims if dim.steps[axis] and dim.count > 1)]
                    elif not steps:
                        steps = [1]
                    steps = [1] if node.mask else steps
                    rows = gcd(rows, start.const, *(coef for _, coef in start.terms), *steps)
        self.row, self.column = max(1, rows), max(1, columns)

    def _compiled(self, node: Node, loops: tuple[Loop, ...], *, per_core: bool) -> Callable[[Env], None] | None:
        """Return a function that follows the executions of ``node``; None if ``node`` touches no tile with a
        shared address.

        With ``per_core`` each iteration of the loop ``node`` runs on a core of its own.
        """
        if not isinstance(node, Loop):
            return self._instruction(node, loops)
        found = [self._compiled(child, (*loops, node), per_core=False) for child in node.body]
        body = [one for one in found if one is not None]
        if not body:
            return None

        def run(env: Env) -> None:
            for trip in range(node.trips):
                if per_core and node.trips > 1:
                    self.core = trip
                env[node.id] = trip
                for one in body:
                    one(env)
                if self.left < 0:
                    return

        return run

    def _instruction(self, node: Instruction, loops: tuple[Loop, ...]) -> Callable[[Env], None] | None:
        if node.op == "memset" and node.attr("lazy"):
            return None  # a lazy memset runs no instruction on the chip; it only makes its tile undefined
        space = iteration_space(node)
        axes = {
            id(operand): found
            for operand, found in zip((*node.srcs, *node.dsts), (*space.srcs, *space.dsts), strict=True)
            if isinstance(operand, Access)
        }
        touches = [
            self._touch(use, axes.get(id(use.access)))
            for use in uses_of(node, loops)
            if use.access.buffer in self.tiles
        ]
        if not touches:
            return None
        # reads come first, because an instruction reads its operands before it writes
        touches.sort(key=lambda touch: touch.use.writes)

        def run(env: Env) -> None:
            self.left -= 1
            if self.left % 64 == 0:
                self.report.tick()
            inside = _inside(node, space.shape, env) if node.mask and prod(space.shape) <= _MOST_MASKED else None
            if inside is not None and not inside.any():
                return
            for touch in touches:
                self._follow(node, touch, env, inside)

        return run

    def _touch(self, use: Use, axes: tuple[int, ...] | None) -> _Touch:
        access, buffer = use.access, self.program.buffers[use.access.buffer]
        axis, strides = buffer.partition_axis, buffer.strides
        width, tile = DTYPE_BYTES[buffer.dtype], prod(buffer.shape[axis:])
        moves = [
            (
                dim.count,
                _moved(dim.steps[:axis], strides[:axis]) // max(1, tile),
                dim.steps[axis],
                _moved(dim.steps[axis + 1 :], strides[axis + 1 :]) * width,
            )
            for dim in access.dims
        ]
        blocks, rows, columns = (_reached([(count, steps[at]) for count, *steps in moves]) for at in range(3))
        columns = _reached([(width // self.column, self.column)], columns)
        cells = None
        if use.instruction.mask and axes is not None and prod(access.shape) <= _MOST_MASKED:
            shapes = [[-1 if k == number else 1 for k in range(len(moves))] for number in range(len(moves))]
            along = [np.arange(count).reshape(shape) for (count, *_), shape in zip(moves, shapes, strict=True)]
            row = sum((one * move[2] for one, move in zip(along, moves, strict=True)), np.zeros(access.shape, np.int64))
            column = sum(
                (one * move[3] for one, move in zip(along, moves, strict=True)), np.zeros(access.shape, np.int64)
            )
            cells = row, column
        return _Touch(use, axes, blocks, rows, columns, cells)

    def _follow(self, node: Instruction, touch: _Touch, env: Env, inside: Array | None) -> None:
        access = touch.use.access
        buffer = self.program.buffers[access.buffer]
        axis, strides = buffer.partition_axis, buffer.strides
        at = [start.at(env) for start in access.start]
        unknown = {item.dim for item in access.indirect}
        first = _moved(at[:axis], strides[:axis]) // max(1, prod(buffer.shape[axis:]))
        shift = _moved(at[axis + 1 :], strides[axis + 1 :]) * DTYPE_BYTES[buffer.dtype]
        rows, columns, blocks = touch.rows + at[axis], touch.columns + shift, touch.blocks
        if unknown:
            size = rectangles(buffer)[0]
            rows, columns = np.arange(size.bottom - size.top), np.arange(0, size.end - size.begin, self.column)
            first, blocks = (
                (0, np.arange(len(self.tiles[access.buffer]))) if min(unknown) < axis else (first, touch.blocks)
            )
        elif inside is not None and touch.cells is not None and touch.axes is not None:
            keep = _of_tile(inside, touch.axes, access.shape)
            wide = np.arange(0, DTYPE_BYTES[buffer.dtype], self.column)
            rows = np.unique(touch.cells[0][keep]) + at[axis]
            columns = np.unique(np.add.outer(np.unique(touch.cells[1][keep]), wide)) + shift
        if not rows.size or not columns.size:
            return
        places = self.tiles[access.buffer]
        for block in blocks:
            number = int(first + block)
            self.left -= 1
            if not 0 <= number < len(places):
                continue
            tile = self._number(access.buffer, number, env)
            parts = self._parts(buffer.space.value, places[number].top + rows, places[number].begin + columns)
            if touch.use.reads:
                self._read(node, parts, tile)
            if touch.use.writes:
                self._write(parts, tile)
                self.named[tile] = access.buffer, node.line

    def _parts(self, space: str, rows: Array, columns: Array) -> _Parts:
        owners = self.owners.get((space, self.core))
        if owners is None:
            ends = [one for tiles in self.tiles.values() for one in tiles if one.space.value == space]
            shape = max(one.bottom for one in ends) // self.row + 1, max(one.end for one in ends) // self.column + 1
            owners = self.owners[space, self.core] = np.zeros(shape, np.int32)
        return owners, _run(rows // self.row), _run(columns // self.column)

    def _read(self, node: Instruction, parts: _Parts, tile: int) -> None:
        """Add a finding if ``node`` reads, among ``parts``, a part of ``tile`` that another tile has overwritten."""
        if tile not in self.lost:
            return
        owners, rows, columns = parts
        reached = _span(rows), _span(columns)
        for lost in self.lost[tile]:
            both = [slice(max(a[0], b[0]), min(a[1], b[1])) for a, b in zip(reached, lost, strict=True)]
            found = owners[both[0], both[1]]
            others = found[(found != 0) & (found != tile)]
            if not others.size:
                continue
            mine = self.program.buffers[self.named[tile][0]]
            buffer, line = self.named[int(others[0])]
            other = self.program.buffers[buffer]
            self.report.add(
                RULE,
                node,
                f"{mine.name or f'tile {mine.id}'} is used after line {line} has written {other.name or f'tile {other.id}'} "
                f"to the same address of {mine.space.value.upper()}",
                _HINT,
            )
            return

    def _write(self, parts: _Parts, tile: int) -> None:
        """Record that ``tile`` has written ``parts``, and that other tiles in scope have lost these parts."""
        owners, rows, columns = parts
        region = (rows, columns) if isinstance(rows, slice) or isinstance(columns, slice) else np.ix_(rows, columns)
        found = owners[region]
        for other in np.unique(found[(found != 0) & (found != tile)]).tolist():
            if other in self.current:
                self.lost.setdefault(other, set()).add((_span(rows), _span(columns)))
        owners[region] = tile

    def _number(self, buffer: int, block: int, env: Env) -> int:
        """Return the number of a tile, which differs between iterations of the loops around the tile's
        declaration.
        """
        place = buffer, block, self.core
        turn = tuple([env.get(loop, 0) for loop in self.program.buffers[buffer].scope])
        known = self.numbers.get(place)
        if known is not None and known[0] == turn:
            return known[1]
        if known is not None:
            self.current.discard(known[1])
            self.lost.pop(known[1], None)
        found = len(self.named)
        self.numbers[place] = turn, found
        self.current.add(found)
        self.named.append((buffer, self.program.buffers[buffer].line))
        return found


def _moved(steps: Sequence[int], strides: tuple[int, ...]) -> int:
    return sum(step * stride for step, stride in zip(steps, strides, strict=True))


def _reached(moves: Sequence[tuple[int, int]], start: Array | None = None) -> Array:
    """Return the sorted positions that an access reaches.

    From each position in ``start`` (0 if ``start`` is None), each pair (count, step) of ``moves`` reaches the
    positions that are 0 to count - 1 steps away. If there are too many positions, return all numbers between the
    least and the greatest position.
    """
    found = np.zeros(1, np.int64) if start is None else start
    for count, step in moves:
        if count <= 1 or not step:
            continue
        if found.size * count > _MOST_SUMS:
            reach = step * (count - 1)
            found = np.arange(found[0] + min(0, reach), found[-1] + max(0, reach) + 1)
        else:
            found = np.unique(np.add.outer(found, np.arange(count) * step))
    return found


def _span(numbers: Array | slice) -> _Span:
    return (numbers.start, numbers.stop) if isinstance(numbers, slice) else (int(numbers[0]), int(numbers[-1]) + 1)


def _run(numbers: Array) -> Array | slice:
    """Return the distinct numbers in sorted order. If they are consecutive, return them as a slice."""
    found = np.unique(numbers)
    if found.size and found[-1] - found[0] + 1 == found.size:
        return slice(int(found[0]), int(found[-1]) + 1)
    return found


def _inside(node: Instruction, shape: tuple[int, ...], env: Env) -> Array:
    """Return a boolean array over the iteration space: True for the points that the instruction's mask includes."""
    inside = np.ones(shape, bool)
    for pattern in node.mask:
        inside &= _pattern(pattern, shape, env) >= 0
    return inside


def _pattern(pattern: Pattern, shape: tuple[int, ...], env: Env) -> Array:
    values = np.full((1,) * len(shape), pattern.base.at(env), np.int64)
    for axis, coef in enumerate(pattern.coefs[: len(shape)]):
        values = values + (np.arange(shape[axis]) * coef).reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return np.broadcast_to(values, shape)


def _of_tile(inside: Array, axes: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """Return a boolean array over a tile: True for each element that is used at a point where the mask ``inside`` is
    True.
    """
    left = tuple(axis for axis in range(inside.ndim) if axis not in axes)
    reduced = inside.any(axis=left) if left else inside
    order = sorted(axis for axis in axes if axis >= 0)
    reduced = np.transpose(reduced, [order.index(axis) for axis in axes if axis >= 0])
    return np.broadcast_to(reduced.reshape([n if axis >= 0 else 1 for n, axis in zip(shape, axes, strict=True)]), shape)
