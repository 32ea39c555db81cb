"""Refuse an instruction that overwrites elements which it still has to read, and a transfer that writes one element
twice.

The simulator reads all elements of an operand before it writes any. On a chip an instruction streams its elements, and
sixteen DMA engines share a transfer. So on a chip the result of these instructions depends on which element is read or
written first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from acceld.nki.execute.context import Context, Step
from acceld.nki.execute.machine import Env, affine, crash
from acceld.nki.execute.tiles import Tile
from acceld.nki.execute.windows import Window
from acceld.nki.ir.numerics import Array
from acceld.nki.ir.operations import DTYPE_BYTES, OPS, Memory, Trait, having
from acceld.nki.ir.program import Access, Program, TileDim
from acceld.nki.ir.regions import apart

_BY_POSITION = (having(Trait.ELEMENTWISE) | {"match_replace8"}) - {"exchange"}
"""Operations that may overwrite their operand if each element is written to the position from which it was read. An
exchange of tiles may not: the other core's tile may arrive before this core has sent its own.
"""
_SEARCHES = frozenset({"match_replace8"})
"""Operations of which only the first operand and the first destination are read and written position by position. Each
element of the other operands is compared with all elements of a row, so nothing may overwrite it meanwhile.
"""
_BY_COLUMN = frozenset({"shuffle"})
"""Operations that read a column in all partitions before they write the same column. They may overwrite their operand if
each element keeps its position within the partition. AWS documents a shuffle in place, and AWS's library spreads the first partition of a tile
over the tile.
"""
_AT_THE_END = frozenset({"tensor_reduce", "bn_stats", "bn_aggr", "max8"})
"""Operations that write a partition's result only after they have read all of the partition's elements. A
``tensor_reduce`` counts only if its result has one element a partition: AWS's library reduces columns of a tile into
one of these columns.
"""
_NO_ENGINE = having(Trait.CONTROL) | {"bitcast"}
_TWICE = "{} writes {} of its elements more than once: it is undefined which value stays"
_READ = "{} overwrites {} elements that it reads at other positions: what is read there is undefined on a chip"


Views = Mapping[int, Access]
"""The part of another buffer that a view covers, by the view's buffer id. A view has elements of another width than the
buffer it views.
"""


def views_of(program: Program) -> Views:
    """Return the buffers that are views of other buffers, each with the part of the other buffer that it covers."""
    found: dict[int, Access] = {}
    for node, _ in program.walk():
        if node.op == "bitcast" and isinstance(source := node.srcs[0], Access):
            part, view = (node.dsts[0], source) if node.attr("back") else (source, node.dsts[0])
            if view.buffer not in found and _root(part.buffer, found) != view.buffer:
                found[view.buffer] = part
    return found


def checked(context: Context, step: Step, views: Views) -> Step:
    """Return ``step`` with a check of overlapping operands before each execution; ``step`` itself if the operands are
    proved not to overlap.

    The check raises KernelCrash.
    """
    step = _checked_by_bytes(context, step, views) if views else step
    instruction = context.instruction
    if instruction.op in _NO_ENGINE or not instruction.dsts:
        return step
    # Most operands share no buffer, so a tile is made only for those that do. Entries: a tile read or written before, the
    # tile that is written, and whether both may be the same tile.
    pairs: list[tuple[Tile, Tile, bool]] = []
    for number, dst in enumerate(instruction.dsts):
        for at, src in enumerate(instruction.srcs):
            if isinstance(src, Access) and _may_meet(src, dst, context):
                source = context.src(at, arranged=False)
                by_position = _by_position(instruction.op, at, number)
                if dst.indirect or not _meet_in_step(instruction.op, source, dst, by_position=by_position):
                    pairs.append((source, context.dst(number, arranged=False), by_position))
        for at, other in enumerate(instruction.dsts[:number]):
            if _may_meet(other, dst, context):
                pairs.append((context.dst(at, arranged=False), context.dst(number, arranged=False), False))
    first = instruction.dsts[0]
    repeated = None
    if OPS[instruction.op].memory is Memory.DMA and not first.indirect and _repeats(first):
        repeated = context.dst(0, arranged=False)
        repeated = repeated if repeated.may_repeat else None
    if not pairs and repeated is None:
        return step

    def run(env: Env, window: Window) -> None:
        if repeated is not None:
            written = repeated.positions(env, window)
            twice = written.size - np.unique(written).size
            if twice:
                hint = "write each element of the destination once"
                crash(_TWICE.format(instruction.op, twice), "repeated_destination", instruction.line, hint)
        for source, target, by_position in pairs:
            read, written = source.positions(env, window), target.positions(env, window)
            in_place = by_position and np.array_equal(read, written)
            if in_place and target.scattered:
                # a position that occurs twice would be read after it was written
                in_place = np.unique(written).size == written.size
            both = 0 if in_place else np.intersect1d(read, written).size
            if both:
                hint = "write to another tile, or in place at the same positions"
                crash(_READ.format(instruction.op, both), "overlap", instruction.line, hint)
        step(env, window)

    return run


def _checked_by_bytes(context: Context, step: Step, views: Views) -> Step:
    """Return ``step`` with a check of operands that are views of one tile and have elements of different widths, or
    start in different parts of the tile.
    """
    instruction = context.instruction
    if instruction.op in _NO_ENGINE or not instruction.dsts:
        return step
    pairs: list[tuple[_Bytes, _Bytes, bool]] = []
    for number, dst in enumerate(instruction.dsts):
        for at, src in enumerate(instruction.srcs):
            if not isinstance(src, Access) or src.buffer == dst.buffer or src.indirect or dst.indirect:
                continue
            if _root(src.buffer, views) == _root(dst.buffer, views) and not _at_the_end(instruction.op, dst, context):
                source, target = context.src(at, arranged=False), context.dst(number, arranged=False)
                by_position = _by_position(instruction.op, at, number)
                pairs.append((_Bytes(source, views), _Bytes(target, views), by_position))
    if not pairs:
        return step

    def run(env: Env, window: Window) -> None:
        for source, target, by_position in pairs:
            both = _met(source.of(env, window), target.of(env, window), by_position=by_position)
            if both:
                crash(_READ.format(instruction.op, both), "overlap", instruction.line, "write to another tile")
        step(env, window)

    return run


def _met(read: Array, written: Array, *, by_position: bool) -> int:
    """Return how many elements are written to bytes from which another element is read.

    ``read`` and ``written`` have one row for each element, with the positions of its bytes. With ``by_position``,
    writing an element into its own bytes is allowed.
    """
    order = np.argsort(read, axis=None, kind="stable")
    places = read.reshape(-1)[order]
    first, last = (np.searchsorted(places, written, side=side) for side in ("left", "right"))
    met = last > first
    if by_position and len(read) == len(written):
        owner = order[np.minimum(first, places.size - 1)] // read.shape[1]
        met &= (last - first > 1) | (owner != np.arange(len(written))[:, None])
    return int(met.any(axis=1).sum())


def _root(buffer: int, views: Views) -> int:
    """Return the buffer in whose memory ``buffer`` lies: the viewed buffer for a view (also for a view of a view), else
    ``buffer``.
    """
    while buffer in views:
        buffer = views[buffer].buffer
    return buffer


class _Bytes:
    """Compute the positions of a tile's bytes in memory. For a view, these are positions in the viewed buffer."""

    def __init__(self, tile: Tile, views: Views) -> None:
        self._tile = tile
        self._width = DTYPE_BYTES[tile.dtype]
        stores, machine = tile.machine.stores, tile.machine
        buffer = tile.access.buffer
        self._parts = []
        while (part := views.get(buffer)) is not None:
            view, base = (stores[one].layout.buffer for one in (buffer, part.buffer))
            widths = DTYPE_BYTES[view.dtype], DTYPE_BYTES[part.dtype or base.dtype]
            steps = [sum(a * b for a, b in zip(dim.steps, base.strides, strict=True)) * widths[1] for dim in part.dims]
            shape = [*(dim.count for dim in part.dims[:-1]), 0]
            shape[-1] = view.elements // max(1, prod(shape[:-1]))
            starts = [
                (affine(machine, one), stride * widths[1]) for one, stride in zip(part.start, base.strides, strict=True)
            ]
            self._parts.append((widths[0], shape, [*steps[:-1], widths[0]], starts))
            buffer = part.buffer

    def of(self, env: Env, window: Window) -> Array:
        """Return the positions of the bytes of each element inside the window: one row for each element."""
        places = self._tile.elements(env, window)[:, None] * self._width + np.arange(self._width)
        for width, shape, steps, starts in self._parts:
            number, inner = np.divmod(places, width)
            places = inner + sum(start(env) * step for start, step in starts)
            for count, step in zip(reversed(shape), reversed(steps), strict=True):
                number, index = np.divmod(number, max(1, count))
                places += index * step
        return places


def _at_the_end(op: str, dst: Access, context: Context) -> bool:
    """Tell whether an operation writes its destination only after it has read all of its operands."""
    partition = context.machine.stores[dst.buffer].layout.buffer.partition_axis
    return op in _AT_THE_END and (op != "tensor_reduce" or not _walked(dst, partition))


def _may_meet(one: Access, other: Access, context: Context) -> bool:
    """Tell whether two accesses may have an element in common."""
    return one.buffer == other.buffer and not apart(one, other, context.trips)


def _moving(dims: Sequence[TileDim]) -> list[TileDim]:
    return [dim for dim in dims if dim.count != 1]


def _by_position(op: str, src: int, dst: int) -> bool:
    """Tell whether the operation may write destination ``dst`` over its operand ``src``, both given by their numbers, if each
    element is written to the position from which it was read.
    """
    return op in _BY_POSITION and (op not in _SEARCHES or src == dst == 0)


def _meet_in_step(op: str, source: Tile, dst: Access, *, by_position: bool) -> bool:
    """Tell whether the operation reads each element of ``source`` before it overwrites that element in ``dst``."""
    partition = source.layout.buffer.partition_axis
    if op in _AT_THE_END:
        return op != "tensor_reduce" or not _walked(dst, partition)
    if op in _BY_COLUMN:
        one = source.access
        moved = any(start != dst.start[d] for d, start in enumerate(one.start) if d != partition)
        return not moved and one.indirect == dst.indirect and _walked(one, partition) == _walked(dst, partition)
    return by_position and _same(source.access, dst)


def _same(one: Access, other: Access) -> bool:
    return (one.start, _moving(one.dims), one.indirect) == (other.start, _moving(other.dims), other.indirect)


def _walked(access: Access, partition: int) -> list[tuple[int, tuple[int, ...]]]:
    """Return (count, steps) of the axes along which an access moves inside one partition."""
    steps = [(dim.count, (*dim.steps[:partition], *dim.steps[partition + 1 :])) for dim in _moving(access.dims)]
    return [one for one in steps if any(one[1])]


def _repeats(access: Access) -> bool:
    """Tell whether several positions of an access may refer to the same element of the buffer.

    That is so if an axis has a step of 0, or if two axes step along one dimension.
    """
    moving = _moving(access.dims)
    along = [d for dim in moving for d, step in enumerate(dim.steps) if step]
    return len(along) != len(set(along)) or any(not any(dim.steps) for dim in moving)
