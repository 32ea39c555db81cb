"""Refuse an instruction that reads what it overwrites, and a transfer that writes one element twice.

The simulator reads all elements of an operand before it writes any. On a chip an instruction streams its
elements, and sixteen engines share a transfer. So on a chip the result of these instructions depends on which
element is read or written first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from acceld.nki.execute.context import Context, Step
from acceld.nki.execute.machine import Env, crash
from acceld.nki.execute.tiles import Tile
from acceld.nki.execute.windows import Window
from acceld.nki.ir.operations import OPS, Memory, Trait, having
from acceld.nki.ir.program import Access, TileDim
from acceld.nki.ir.regions import apart

_BY_POSITION = having(Trait.ELEMENTWISE) | {"match_replace8"}
"""Operations that may write the elements that they read, if both operands are the same at each position."""
_BY_COLUMN = frozenset({"shuffle"})
"""Operations that read an element of all partitions before they write an element of any partition. So only the
positions inside of a partition must be the same. AWS documents a shuffle in place, and its library spreads the first
partition of a tile over the tile.
"""
_AT_THE_END = frozenset({"tensor_reduce", "bn_stats", "bn_aggr", "max8"})
"""Operations whose result needs every element of a partition, so that nothing is written before everything is read; a
``tensor_reduce`` only if it gives one element a partition. AWS's library reduces columns of a tile into one of these
columns.
"""
_NO_ENGINE = having(Trait.CONTROL) | {"bitcast"}
_TWICE = "{} writes {} of its elements more than once: it is undefined which value stays"
_READ = "{} overwrites {} elements that it reads at other positions: what is read there is undefined on a chip"


def checked(context: Context, step: Step) -> Step:
    """Return ``step`` with a check before each execution; ``step`` itself if the operands are proved not to
    overlap.

    The check raises KernelCrash.
    """
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
                if dst.indirect or not _meet_in_step(instruction.op, source, dst):
                    pairs.append((source, context.dst(number, arranged=False), instruction.op in _BY_POSITION))
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
                in_place = np.unique(written).size == written.size  # else an element is read after it was written
            both = 0 if in_place else np.intersect1d(read, written).size
            if both:
                hint = "write to another tile, or in place at the same positions"
                crash(_READ.format(instruction.op, both), "overlap", instruction.line, hint)
        step(env, window)

    return run


def _may_meet(one: Access, other: Access, context: Context) -> bool:
    """Tell whether two operands may share an element."""
    return one.buffer == other.buffer and not apart(one, other, context.trips)


def _moving(dims: Sequence[TileDim]) -> list[TileDim]:
    return [dim for dim in dims if dim.count != 1]


def _meet_in_step(op: str, source: Tile, dst: Access) -> bool:
    """Tell whether an operation reads each element of ``source`` before, or just when, it writes that element
    of ``dst``.
    """
    partition = source.layout.buffer.partition_axis
    if op in _AT_THE_END:
        return op != "tensor_reduce" or not _walked(dst, partition)
    if op in _BY_COLUMN:
        one = source.access
        moved = any(start != dst.start[d] for d, start in enumerate(one.start) if d != partition)
        return not moved and one.indirect == dst.indirect and _walked(one, partition) == _walked(dst, partition)
    return op in _BY_POSITION and _same(source.access, dst)


def _same(one: Access, other: Access) -> bool:
    return (one.start, _moving(one.dims), one.indirect) == (other.start, _moving(other.dims), other.indirect)


def _walked(access: Access, partition: int) -> list[tuple[int, tuple[int, ...]]]:
    """Return (count, steps) of the axes along which an access moves inside one partition."""
    steps = [(dim.count, (*dim.steps[:partition], *dim.steps[partition + 1 :])) for dim in _moving(access.dims)]
    return [one for one in steps if any(one[1])]


def _repeats(access: Access) -> bool:
    """Tell whether several positions of an access may be one element.

    That is so if an axis does not move, or if two axes move along one dimension.
    """
    moving = _moving(access.dims)
    along = [d for dim in moving for d, step in enumerate(dim.steps) if step]
    return len(along) != len(set(along)) or any(not any(dim.steps) for dim in moving)
