"""Find the parts of outputs that no run of a program can write.

An element that is reported as not written is written in no run, because the computation counts too many elements as
written, never too few:

- A masked access counts as if it had no mask. An access with a run-time index counts as reaching the whole dimension.
- A loop counts with its greatest number of iterations.
- The indices of different dimensions count as independent of each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from acceld.nki.ir.def_use import Use, all_uses
from acceld.nki.ir.program import Access, Buffer, Program, Role

MOST_ELEMENTS = 2**26
"""Greatest number of elements of a buffer, and of marked elements in total. Nothing is reported for larger buffers."""
FARTHEST = 4
"""Limit on how far the positions of an access may spread, as a multiple of the dimension's length. The positions of an
access that spreads farther are not computed one by one.
"""

Marks = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Gap:
    """An output that is written only in part: at most ``written`` of its ``elements``, and never the element
    ``first``.
    """

    name: str
    shape: tuple[int, ...]
    first: tuple[int, ...]
    written: int
    elements: int
    line: int

    def __str__(self) -> str:
        share = 100 * self.written / self.elements
        where = f"line {self.line}: " if self.line else ""
        return (
            f"{where}output {self.name} {list(self.shape)} is partly written: at most {share:.3g} % of it, "
            f"and no instruction writes element {list(self.first)}"
        )


def gaps(program: Program) -> tuple[Gap, ...]:
    """Return the outputs that no run writes completely, each with the line of its last write.

    Outputs that are never written, very large outputs and updated inputs are left out.
    """
    trips = {number: loop.trips for number, loop in program.loops.items()}
    uses = all_uses(program)
    found = []
    for number in program.outputs:
        buffer = program.buffers[number]
        writes = [use for use in uses.get(number, ()) if use.writes]
        if buffer.role is Role.INPUT or not writes or not 0 < buffer.elements <= MOST_ELEMENTS:
            continue
        marks = _written(buffer, writes, trips)
        if marks is None or marks.all():
            continue
        first = np.unravel_index(int(marks.reshape(-1).argmin()), buffer.outer_shape)
        found.append(
            Gap(
                buffer.name or f"buffer {number}",
                buffer.outer_shape,
                tuple(int(place) for place in first),
                int(marks.sum()),
                buffer.elements,
                writes[-1].instruction.line,
            )
        )
    return tuple(found)


def _written(buffer: Buffer, writes: Sequence[Use], trips: Mapping[int, int]) -> Marks | None:
    """Return a boolean array over a buffer that is True for elements which some write may reach; None if computing it
    would take too long.
    """
    marks = np.zeros(buffer.shape, np.bool_)
    left = MOST_ELEMENTS
    for use in writes:
        places = [np.flatnonzero(_reached(use.access, d, length, trips)) for d, length in enumerate(buffer.shape)]
        left -= prod(map(len, places)) + sum(buffer.shape)
        if left < 0:
            return None
        marks[np.ix_(*places)] = True
    return marks


def _reached(access: Access, d: int, length: int, trips: Mapping[int, int]) -> Marks:
    """Return a boolean array over the indices of dimension ``d`` that is True for indices which the access reaches in
    some iteration.
    """
    everywhere = np.ones(length, np.bool_)
    if any(one.dim == d for one in access.indirect):
        return everywhere
    moves = [(coef, trips[loop]) for loop, coef in access.start[d].terms]
    moves += [(dim.steps[d], dim.count) for dim in access.dims if dim.steps[d]]
    if any(count < 1 for _, count in moves) or any(dim.count < 1 for dim in access.dims):
        return ~everywhere
    low = access.start[d].const + sum(min(0, step * (count - 1)) for step, count in moves)
    size = 1 + sum(abs(step) * (count - 1) for step, count in moves)
    if size > FARTHEST * length + 1024:
        return everywhere
    marks = np.zeros(size, np.bool_)
    marks[access.start[d].const - low] = True
    for step, count in moves:
        covered = 1
        while covered < count:
            more = min(covered, count - covered)
            _spread(marks, step * more)
            covered += more
    inside = np.zeros(length, np.bool_)
    begin, end = max(0, low), min(length, low + size)
    if begin < end:
        inside[begin:end] = marks[begin - low : end - low]
    return inside


def _spread(marks: Marks, by: int) -> None:
    """Mark, in addition, each position that comes ``by`` positions after a marked position. ``marks`` is changed in
    place.
    """
    if by > 0:
        marks[by:] |= marks[:-by].copy()
    elif by < 0:
        marks[:by] |= marks[-by:].copy()
