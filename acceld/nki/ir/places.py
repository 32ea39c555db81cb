"""Find the memory that tiles with addresses occupy.

Each tile of SBUF and PSUM with an address occupies a rectangle: its partitions, and its bytes in each of them. Two
tiles whose rectangles overlap share memory on the chip.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from acceld.nki.ir.operations import DTYPE_BYTES
from acceld.nki.ir.program import Buffer, Program, Space


@dataclass(frozen=True, slots=True)
class Rectangle:
    """The memory of one tile: partitions ``top`` to ``bottom``, and in each of them bytes ``begin`` to ``end``.
    ``bottom`` and ``end`` are excluded.
    """

    space: Space
    top: int
    bottom: int
    begin: int
    end: int

    def meets(self, other: Rectangle) -> bool:
        """Tell whether the two rectangles have a byte in common."""
        apart = (
            self.bottom <= other.top or other.bottom <= self.top or self.end <= other.begin or other.end <= self.begin
        )
        return self.space is other.space and not apart

    def holds(self, other: Rectangle) -> bool:
        """Tell whether every byte of ``other`` lies in this rectangle."""
        rows = self.top <= other.top and other.bottom <= self.bottom
        return self.space is other.space and rows and self.begin <= other.begin and other.end <= self.end


def rectangles(buffer: Buffer) -> list[Rectangle]:
    """Return the memory of each tile of a buffer, in the order of its blocks; [] for a buffer in HBM, or for one whose
    addresses the compiler chooses.
    """
    if not buffer.places or buffer.space is Space.HBM:
        return []
    rows = buffer.shape[buffer.partition_axis]
    size = prod(buffer.shape[buffer.partition_axis + 1 :]) * DTYPE_BYTES[buffer.dtype]
    return [Rectangle(buffer.space, top, top + rows, at, at + size) for top, at in buffer.places]


def sharing(program: Program) -> frozenset[int]:
    """Return the ids of the buffers that may share bytes with another tile. A buffer that is not in the result
    certainly shares no bytes.
    """
    tiles = sorted(
        (one.space.value, one.begin, one.end, buffer.id) for buffer in program.buffers for one in rectangles(buffer)
    )
    found: set[int] = set()
    group: set[int] = set()
    count, space, reach = 0, "", 0
    for kind, begin, end, buffer in tiles:
        if kind != space or begin >= reach:
            found |= group if count > 1 else set()
            group, count, reach = set(), 0, 0
        group.add(buffer)
        count, space, reach = count + 1, kind, max(reach, end)
    return frozenset(found | (group if count > 1 else set()))
