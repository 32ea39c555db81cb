"""Prove that the programs of a launch, written out one after another, use elements of their own.

Programs of a launch have no order. A launch whose programs do the same is an affine loop, or a loop over the launch grid, and
:mod:`acceld.nki.execute.iterations` follows its values. A launch whose programs differ is written out, so no loop is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from acceld.nki.ir.def_use import Use, joins, uses_of
from acceld.nki.ir.numerics import Array
from acceld.nki.ir.program import Buffer, Loop, Node
from acceld.nki.ir.regions import apart, box

_MOST_PAIRS = 1_000_000
"""Most pairs of uses that are compared. Further pairs count as uses of the same elements."""


def meeting(
    programs: Sequence[Sequence[Node]], buffers: Sequence[Buffer], trips: Mapping[int, int]
) -> tuple[Use, Use] | None:
    """Return two uses that meet: a use of an element by one program, and a write of the same element by another
    program. Return None if there is no such element.

    Uses do not meet if both programs add to the element, or combine values with it by another operation whose order
    does not matter.
    """
    by_buffer: dict[int, dict[int, list[Use]]] = {}
    for number, nodes in enumerate(programs):
        for use in _uses(nodes, ()):
            by_buffer.setdefault(use.access.buffer, {}).setdefault(number, []).append(use)
    left = _MOST_PAIRS
    for buffer, found in by_buffer.items():
        shape = buffers[buffer].shape
        writes = {number: [use for use in uses if use.writes] for number, uses in found.items()}
        if len(found) < 2 or not any(writes.values()):
            continue
        writers = [number for number, uses in writes.items() if uses]
        low, high = _hulls([found[number] for number in found], shape, trips)
        least, most = _hulls([writes[number] for number in writers], shape, trips)
        numbers = list(found)
        for place, writer in enumerate(writers):
            near = np.flatnonzero(((low < most[place]) & (least[place] < high)).all(axis=1))
            for other in (numbers[k] for k in near if numbers[k] != writer):
                for write in writes[writer]:
                    for use in found[other]:
                        left -= 1
                        if left < 0 or not (
                            apart(write.access, use.access, trips) or _way(write, buffers) == _way(use, buffers) != ""
                        ):
                            return use, write
    return None


def _uses(nodes: Sequence[Node], loops: tuple[Loop, ...]) -> Iterator[Use]:
    for node in nodes:
        if isinstance(node, Loop):
            yield from _uses(node.body, (*loops, node))
        else:
            yield from uses_of(node, loops)


def _way(use: Use, buffers: Sequence[Buffer]) -> str:
    """Return the operation by which a use combines new values with its tile, if the order of such uses does not
    matter; empty text for any other use.
    """
    dsts = use.instruction.dsts
    places = [number for number, dst in enumerate(dsts) if dst == use.access]
    return joins(use.instruction, places[0], buffers) if places else ""


def _hulls(programs: Sequence[Sequence[Use]], shape: tuple[int, ...], trips: Mapping[int, int]) -> tuple[Array, Array]:
    """Return two arrays with a row for each program and a column for each dimension: the least index that the
    program's uses may reach, and the index after the greatest one.
    """
    low = np.full((len(programs), len(shape)), np.iinfo(np.int64).max)
    high = np.full_like(low, -1)
    for row, uses in enumerate(programs):
        for use in uses:
            region, unknown = box(use.access), {one.dim for one in use.access.indirect}
            for d, (start, extent) in enumerate(zip(region.starts, region.extents, strict=True)):
                least, most = (0, shape[d] - 1) if d in unknown else start.bounds(trips)
                low[row, d] = min(low[row, d], least)
                high[row, d] = max(high[row, d], most + extent)
    return low, high
