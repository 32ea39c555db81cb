"""Provide ``nl.tiles``, ``nl.blocks`` and their allocations (NKI 0.7): tensors that are indexed by tile or
block.

Such a tensor is a *grid*. One step of its index is a *unit*: a tile or a block.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Self, TypeVar, cast

from acceld.nki.frontend.core.context import refuse, unsupported
from acceld.nki.frontend.core.memory import buffer_kind
from acceld.nki.frontend.current.declarations import ndarray
from acceld.nki.frontend.current.operands import tensor
from acceld.nki.frontend.current.tensor import NkiTensor
from acceld.nki.ir.program import Space


@dataclass(frozen=True, slots=True)
class _Backing:
    """The tensor in which a grid stores its elements.

    An allocation on chip has its tiles side by side in the same partitions: ``counts`` tiles along each axis, each of
    ``tile`` elements. ``tile`` is None for a tensor that is not stored in tiles.
    """

    tensor: NkiTensor
    tile: tuple[int, int] | None = None
    counts: tuple[int, int] = (1, 1)

    def has(self, begins: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
        """Tell whether the box of ``sizes`` elements that begins at ``begins`` can be returned as one tensor."""
        return self.tile is None or begins[0] // self.tile[0] == (begins[0] + sizes[0] - 1) // self.tile[0]

    def part(self, begins: tuple[int, ...], sizes: tuple[int, ...]) -> NkiTensor:
        """Return the box of ``sizes`` elements that begins at ``begins`` as one tensor."""
        if self.tile is not None:
            row, begin = divmod(begins[0], self.tile[0])
            column = row * self.counts[1] * self.tile[1] + begins[1]
            begins = (begin, column)
        keys = tuple(slice(begin, begin + size) for begin, size in zip(begins, sizes, strict=True))
        return cast("NkiTensor", self.tensor[keys])


@dataclass(frozen=True, slots=True)
class NkiGrid:
    """A tensor that is indexed in units of tiles or blocks. Units at the end of an axis may be smaller.

    An index with a number selects one unit of an axis; the axis then no longer counts in :attr:`shape`.
    """

    backing: _Backing
    begins: tuple[int, ...]
    sizes: tuple[int, ...]
    tile_shape: tuple[int, ...]
    units: tuple[int, ...]
    """Number of elements by which one step of the index moves along each axis; 1 for an axis that is not tiled."""
    kept: tuple[bool, ...]
    """For each axis, False if an index has selected a single unit of it, so that the axis no longer counts in
    :attr:`shape`.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of tiles or blocks along each axis. An axis of which an index has selected a single unit is
        left out.
        """
        return tuple(-(-self.sizes[axis] // self.units[axis]) for axis in self._axes())

    @property
    def index_step_elements(self) -> tuple[int, ...]:
        """Return the number of elements of one unit along each axis of :attr:`shape`."""
        return tuple(self.units[axis] for axis in self._axes())

    @property
    def element_shape(self) -> tuple[int, ...]:
        """Return the number of elements along each axis of :attr:`data`."""
        return tuple(self.sizes[axis] for axis in range(len(self.sizes)) if self._shown(axis))

    @property
    def dtype(self) -> object:
        """Return the dtype of the elements."""
        return self.backing.tensor.dtype

    @property
    def buffer(self) -> object:
        """Return the memory that holds the tensor."""
        return self.backing.tensor.buffer

    @property
    def is_remainder(self) -> bool:
        """Return True if the last tile or block of the selection is smaller than the others along some axis."""
        return any(size % unit for size, unit in zip(self.sizes, self.units, strict=True))

    @property
    def is_data_representable(self) -> bool:
        """Return True if the selected elements can be one tensor, so that :attr:`data` works."""
        return self.backing.has(self.begins, self.sizes)

    @property
    def data(self) -> NkiTensor:
        """Return the selected elements as a tensor, to pass to an instruction. Raise UnsupportedCall if they
        can not be one tensor.
        """
        if not self.is_data_representable:
            unsupported(
                f".data of several rows of tiles of {self.backing.tensor.label} at once is not simulated",
                "select one row of tiles",
            )
        whole = self.backing.part(self.begins, self.sizes)
        gone = [axis for axis in range(len(self.sizes)) if not self._shown(axis)]
        return whole.reshape(self.element_shape) if gone else whole

    def _axes(self) -> list[int]:
        """Return the numbers of the axes that :attr:`shape` contains: no index has selected a single tile or block of
        them.
        """
        return [axis for axis, kept in enumerate(self.kept) if kept]

    def _shown(self, axis: int) -> bool:
        """Tell whether :attr:`data` has axis ``axis``: the axis is tiled, or no index has selected a single position of
        it.
        """
        return self.kept[axis] or axis >= len(self.sizes) - len(self.tile_shape)

    def __getitem__(self, key: object) -> Self:
        keys = key if isinstance(key, tuple) else (key,)
        axes = self._axes()
        if len(keys) > len(axes):
            refuse(
                "index_rank",
                f"a grid of {len(axes)} axes got {len(keys)} indices",
                f"give at most one for each axis of its shape {self.shape}",
            )
        begins, sizes, kept = list(self.begins), list(self.sizes), list(self.kept)
        for axis, count, one in zip(axes, self.shape, keys, strict=False):
            if isinstance(one, slice):
                first, stop, step = one.indices(count)
                if step != 1 or stop <= first:
                    refuse(
                        "out_of_bounds",
                        f"the slice {one} selects none of the {count} tiles or blocks, or has a step",
                        "take a range with step 1",
                    )
                number = stop - first
            else:
                first, number = operator.index(cast("Any", one)), 1
                first += count if first < 0 else 0
                kept[axis] = False
                if not 0 <= first < count:
                    refuse(
                        "out_of_bounds",
                        f"index {one} is outside of the {count} tiles or blocks",
                        f"use 0 to {count - 1}",
                    )
            unit = self.units[axis]
            begins[axis] += first * unit
            sizes[axis] = min(number * unit, sizes[axis] - first * unit)
        return replace(self, begins=tuple(begins), sizes=tuple(sizes), kept=tuple(kept))


class NkiTileGrid(NkiGrid):
    """A tensor that is indexed by tile."""

    __slots__ = ()


class NkiBlockGrid(NkiGrid):
    """A tensor that is indexed by block. A block is a group of tiles."""

    __slots__ = ()

    @property
    def block_shape(self) -> tuple[int, ...]:
        """Return the number of tiles in a block along each tiled axis."""
        tiled = self.units[len(self.units) - len(self.tile_shape) :]
        return tuple(unit // size for unit, size in zip(tiled, self.tile_shape, strict=True))


def _sizes(value: object, name: str, least: int = 1) -> tuple[int, ...]:
    """Return ``value`` as a tuple of positive sizes. Raise LegalityError if ``value`` is not a sequence of at least
    ``least`` positive sizes.
    """
    sizes = tuple(value) if isinstance(value, tuple | list) else ()
    if len(sizes) < least or any(not isinstance(n, int) or isinstance(n, bool) or n < 1 for n in sizes):
        refuse("shape", f"{name} is {value!r}", f"pass a tuple of at least {least} whole numbers from 1 on")
    return sizes


_Grid = TypeVar("_Grid", bound=NkiGrid)


def _over(kind: type[_Grid], source: object, tile_shape: object, block_shape: Sequence[int], call: str) -> _Grid:
    """Return a grid of class ``kind`` over a tensor, or over the elements that another grid has selected."""
    if isinstance(source, NkiGrid):
        shape = source.tile_shape if tile_shape is None else _sizes(tile_shape, "tile_shape", 2)
        backing, begins, sizes = source.backing, source.begins, source.sizes
    else:
        given = tensor(source, "source", call)
        shape = _sizes(tile_shape, "tile_shape", 2)
        backing, begins, sizes = _Backing(cast("NkiTensor", given)), (0,) * given.ndim, given.shape
    if len(shape) > len(sizes):
        refuse(
            "shape",
            f"tile_shape={shape} of '{call}' has more axes than the tensor {list(sizes)}",
            "give a size for each of the last axes, at most",
        )
    blocks = tuple(block_shape) or (1,) * len(shape)
    if len(blocks) != len(shape):
        refuse(
            "shape",
            f"block_shape={blocks} and tile_shape={shape} of '{call}' differ in length",
            "give block_shape as many sizes as tile_shape",
        )
    before = len(sizes) - len(shape)
    units = (1,) * before + tuple(size * count for size, count in zip(shape, blocks, strict=True))
    kept = source.kept[:before] + (True,) * len(shape) if isinstance(source, NkiGrid) else (True,) * len(sizes)
    return kind(backing, begins, sizes, shape, units, kept)


def tiles(source: object, *, tile_shape: tuple[int, ...] | None = None) -> NkiTileGrid:
    """Return ``source`` indexed in tiles. ``tile_shape`` has the sizes of a tile along the last axes of
    ``source``.

    If ``source`` is a grid, ``tile_shape`` may be None, which keeps the grid's tiles.
    """
    return _over(NkiTileGrid, source, tile_shape, (), "tiles")


def blocks(source: object, *, tile_shape: tuple[int, ...] | None = None, block_shape: tuple[int, ...]) -> NkiBlockGrid:
    """Return ``source`` indexed in blocks. Each block has ``block_shape`` tiles of ``tile_shape`` elements."""
    return _over(NkiBlockGrid, source, tile_shape, _sizes(block_shape, "block_shape"), "blocks")


def _allocated(
    tile_shape: object, element_shape: object, buffer: object, dtype: object, address: Any, name: str, call: str
) -> NkiTileGrid:
    """Return a new tensor without values, indexed by tile."""
    tile, shape = _sizes(tile_shape, "tile_shape", 2), _sizes(element_shape, "element_shape", 2)
    if buffer_kind(buffer).space is Space.HBM:
        return _over(NkiTileGrid, ndarray(shape, dtype, buffer, name, address), tile, (), call)
    if len(tile) != 2 or len(shape) != 2:
        unsupported(
            f"'{call}' on chip with tile_shape={tile} for a tensor {list(shape)} is not simulated",
            "use tiles of two axes",
        )
    counts = (-(-shape[0] // tile[0]), -(-shape[1] // tile[1]))
    made = ndarray((tile[0], prod(counts) * tile[1]), dtype, buffer, name, address)
    backing = _Backing(cast("NkiTensor", made), (tile[0], tile[1]), counts)
    return NkiTileGrid(backing, (0, 0), shape, tile, tile, (True, True))


def alloc_tiles(
    *, tile_shape: tuple[int, ...], element_shape: tuple[int, ...], buffer: object, dtype: object,
    address: tuple[int, int] | None = None, name: str = "",
) -> NkiTileGrid:  # fmt: skip
    """Return a new tensor without values, indexed by tile. On chip, all tiles lie side by side in the same partitions."""
    return _allocated(tile_shape, element_shape, buffer, dtype, address, name, "alloc_tiles")


def alloc_blocks(
    *, tile_shape: tuple[int, ...], block_shape: tuple[int, ...], element_shape: tuple[int, ...], buffer: object,
    dtype: object, address: tuple[int, int] | None = None, name: str = "",
) -> NkiBlockGrid:  # fmt: skip
    """Return a new tensor without values, indexed by block. On chip, all tiles lie side by side in the same partitions."""
    made = _allocated(tile_shape, element_shape, buffer, dtype, address, name, "alloc_blocks")
    return blocks(made, block_shape=block_shape)
