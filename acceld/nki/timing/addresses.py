"""Order the instructions that write tiles to which the kernel gave addresses.

The model assumes that the compiler finds free memory for every tile without an address. A tile to which the kernel gave
an address can lie only at that address. So every reader of the values that are stored at the address must finish before
the tile is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from acceld.nki.ir.places import Rectangle, rectangles
from acceld.nki.ir.program import Access, Affine, Buffer
from acceld.nki.timing.buffer_pieces import CellAccess, values
from acceld.nki.timing.expansion import Prepared
from acceld.nki.timing.value_numbering import Stream


@dataclass(frozen=True, slots=True)
class _Write:
    """One destination of an instruction that writes tiles with addresses.

    ``blocks`` and ``turns`` have one entry for each execution. An entry of ``blocks`` is the number of the block that
    is written. An entry of ``turns`` counts the iterations of the loops around the buffer's declaration.
    """

    cells: CellAccess
    tiles: list[Rectangle]
    blocks: list[int]
    turns: list[int]


@dataclass(slots=True)
class _Held:
    """The tile that occupies a rectangle of memory now, and the number of the value in each of the tile's cells."""

    tile: tuple[int, int, int]
    values: dict[int, int]


def wait_for_places(stream: Stream, prepared: Prepared) -> None:
    """Add to ``stream.replaced`` of each event the values of other tiles that the event overwrites, because they lie at
    the same addresses.
    """
    program, trips = prepared.program, prepared.trips
    writes: dict[int, list[_Write | None]] = {}
    for number, (node, loops) in enumerate(program.walk()):
        space = tuple((loop.id, trips[loop.id]) for loop in loops)
        found = [
            _write(program.buffers[dst.buffer], dst, cells, space)
            for dst, cells in zip(node.dsts, prepared.templates[number].writes, strict=False)
        ]
        if any(found):
            writes[number] = found
    places = _Places()
    for event, template in enumerate(stream.templates):
        if template.number in writes:
            waits = places.written(writes[template.number], stream.turn[event], stream.outputs[event])
            stream.replaced[event] += tuple(sorted(waits - {*stream.inputs[event]} - {*stream.outputs[event]}))


class _Places:
    def __init__(self) -> None:
        self._held: dict[Rectangle, _Held] = {}
        self._beside: dict[Rectangle, list[Rectangle]] = {}
        """For each rectangle of memory, all recorded rectangles that overlap it."""

    def written(self, writes: list[_Write | None], turn: int, outs: tuple[int, ...]) -> set[int]:
        """Record the values that one execution writes. Return the values of other tiles that it overwrites at the
        same addresses.
        """
        found: set[int] = set()
        position = 0
        for write in writes:
            if write is None:
                continue
            place = write.tiles[write.blocks[turn]]
            tile = write.cells.buffer, write.blocks[turn], write.turns[turn]
            found |= self._freed(place, tile)
            held = self._held.setdefault(place, _Held(tile, {}))
            for offset in write.cells.offsets:
                cell = write.cells.bases[turn] + offset
                if cell in held.values:
                    found.add(held.values[cell])
                held.values[cell] = outs[position]
                position += 1
        return found

    def _freed(self, place: Rectangle, tile: tuple[int, int, int]) -> set[int]:
        """Return the numbers of the values in other tiles that overlap ``place``. Tiles that lie entirely inside
        ``place`` are forgotten.
        """
        found: set[int] = set()
        if place not in self._beside:
            self._beside[place] = [other for other in self._beside if other.meets(place)]
            for other in [*self._beside[place], place]:
                self._beside[other].append(place)
        for other in self._beside[place]:
            held = self._held.get(other)
            if held is not None and held.tile != tile:
                found.update(held.values.values())
                if place.holds(other):
                    del self._held[other]
        return found


def _write(buffer: Buffer, access: Access, cells: CellAccess, space: tuple[tuple[int, int], ...]) -> _Write | None:
    tiles = rectangles(buffer)
    if not tiles:
        return None
    axis, size = buffer.partition_axis, prod(buffer.shape[buffer.partition_axis :])
    block, turn = Affine(), Affine()
    for start, stride in zip(access.start[:axis], buffer.strides[:axis], strict=True):
        block += start.scale(stride // size)
    for loop, count in space:
        if loop in buffer.scope:
            turn = turn.scale(count) + Affine(0, ((loop, 1),))
    last = len(tiles) - 1
    return _Write(
        cells, tiles, [min(max(0, one), last) for one in values(block, space).tolist()], values(turn, space).tolist()
    )
