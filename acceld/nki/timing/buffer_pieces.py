"""Divide buffers into cells, the pieces that the model treats as read or written as a whole.

A cell is the largest box such that every access to its buffer covers whole cells, in every iteration of every loop. If
an access would cover more than MAX_CELLS cells, cells are made larger. A write may then cover only part of a cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, gcd, prod

import numpy as np

from acceld.nki.ir.operations import DTYPE_BYTES
from acceld.nki.ir.program import Access, Affine, Buffer, Space, TileDim

MAX_CELLS = 64
"""Greatest number of cells that one access may cover."""

MAX_STARTS = 4096
"""Greatest number of separate runs of elements in one access. An access with more runs is treated as one run from its
first element to its last.
"""

PSUM_BANK_BYTES = 2048
"""Bytes of a PSUM bank in each partition (all chips). A tile in PSUM takes at least one bank."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The elements that an access covers along one dimension of a buffer: runs of ``run`` elements that begin
    at ``starts``.

    Starts are relative to the access's own start. If ``exact`` is False, the runs include elements that are not
    accessed. That is safe for a read; a write must then keep the old values.
    """

    run: int
    starts: tuple[int, ...]
    exact: bool = True

    @property
    def span(self) -> int:
        """Return the number of elements from the first covered element to the last."""
        return self.starts[-1] + self.run


@dataclass(frozen=True, slots=True)
class Grid:
    """The division of one buffer into cells.

    A cell has ``grain`` elements along each dimension. The number of a cell is the sum of its indices times
    ``strides``.
    """

    grain: tuple[int, ...]
    strides: tuple[int, ...]
    exact: bool
    cell_bytes: float
    """Bytes by which one cell counts in every partition: ``row_bytes`` times the share of the tile's partitions that
    the cell spans. In PSUM the share is that of the partitions which the program accesses.
    """
    row_bytes: int
    """Bytes of one cell in each partition that the cell spans."""


class Axes:
    """Give each distinct tuple of tile axes a number, so that two tuples can be compared by their numbers.

    A decoded program has few distinct tuples, so a look-up by identity usually succeeds.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[TileDim, ...], int] = {}
        self._seen: dict[int, tuple[tuple[TileDim, ...], int]] = {}
        """Each seen tuple with its number, by the tuple's ``id``. The tuples are kept alive here, so that no other
        object can get the same ``id``.
        """

    def number(self, axes: tuple[TileDim, ...]) -> int:
        """Return the number of a tuple of tile axes. Equal tuples have equal numbers."""
        found = self._seen.get(id(axes))
        if found is None:
            found = self._seen[id(axes)] = axes, self._numbers.setdefault(axes, len(self._numbers))
        return found[1]


@dataclass(frozen=True, slots=True)
class CellAccess:
    """The cells that one access covers. In execution ``i`` these are the cells ``bases[i] + offset``, for each of
    ``offsets``.
    """

    buffer: int
    bases: list[int]
    offsets: tuple[int, ...]
    partial: bool
    """True if the access may skip some elements of these cells. A write then keeps part of their old contents."""


def extent(access: Access, dim: int) -> Extent:
    """Return the elements that ``access`` covers along dimension ``dim`` of its buffer."""
    return _extent(tuple([(d.steps[dim], d.count) for d in access.dims if d.steps[dim] and d.count > 1]))


@lru_cache(1024)
def _extent(moves: tuple[tuple[int, int], ...]) -> Extent:
    """Return the elements that loops over ``moves`` cover; each move is (step, count).

    The result is cached, because kernels repeat the same few shapes.
    """
    low = sum(min(0, step) * (count - 1) for step, count in moves)
    run, starts, exact = 1, [0], True
    for step, count in sorted((abs(step), count) for step, count in moves):
        if step <= run and len(starts) == 1:
            run += step * (count - 1)
        elif len(starts) * count <= MAX_STARTS:
            starts = [start + step * i for i in range(count) for start in starts]
        else:
            run, starts, exact = max(starts) + run + step * (count - 1), [0], False
    starts.sort()
    return Extent(run, tuple(start + low for start in starts), exact)


def make_grids(
    buffers: tuple[Buffer, ...], accesses: Mapping[int, Iterable[Access]], trips: Mapping[int, int]
) -> dict[int, Grid]:
    """Return the division into cells of each buffer in ``accesses``, which has all accesses of the program, as a dict
    by buffer id.
    """
    grids: dict[int, Grid] = {}
    known: dict[object, Grid] = {}
    axes = Axes()
    for number, found in accesses.items():
        buffer, distinct = buffers[number], {(one.start, axes.number(one.dims), one.indirect): one for one in found}
        key = buffer.shape, buffer.dtype, buffer.space, buffer.partition_axis, frozenset(distinct)
        grid = known.get(key)
        if grid is None:  # equal buffers, as an unrolled loop declares them, share one grid
            grid = known[key] = _grid(buffer, distinct.values(), trips)
        grids[number] = grid
    return grids


def _grid(buffer: Buffer, accesses: Iterable[Access], trips: Mapping[int, int]) -> Grid:
    rank = len(buffer.shape)
    grain = [0] * rank
    high = list(buffer.shape)
    widest = [1] * rank
    for access in accesses:
        indirect = {item.dim for item in access.indirect}
        for dim in range(rank):
            if dim in indirect:
                grain[dim] = gcd(grain[dim], buffer.shape[dim])
                continue
            start, covered = access.start[dim], extent(access, dim)
            grain[dim] = gcd(grain[dim], start.const + covered.starts[0], covered.run)
            for a, b in zip(covered.starts, covered.starts[1:], strict=False):
                grain[dim] = gcd(grain[dim], b - a)
            for loop, coef in start.terms:
                if trips[loop] > 1:
                    grain[dim] = gcd(grain[dim], coef)
            high[dim] = max(high[dim], start.bounds(trips)[1] + covered.span)
            widest[dim] = max(widest[dim], covered.run * len(covered.starts))
    grain = [g or size for g, size in zip(grain, buffer.shape, strict=True)]
    exact = True
    while prod(ceil(w / g) for w, g in zip(widest, grain, strict=True)) > MAX_CELLS:
        dim = max(range(rank), key=lambda d: widest[d] / grain[d])
        grain[dim] = max(grain[dim] * 2, widest[dim] // MAX_CELLS)
        exact = False
    strides, step = [0] * rank, 1
    for dim in reversed(range(rank)):
        strides[dim] = step
        step *= ceil(high[dim] / grain[dim]) + 1
    row = _row_bytes(buffer, grain)
    if buffer.space is Space.PSUM:
        share = _bank_share(buffer, grain, accesses, trips)
    else:
        share = _share(buffer, grain)
    return Grid(tuple(grain), tuple(strides), exact, row * share, row)


def _row_bytes(buffer: Buffer, grain: list[int]) -> int:
    if buffer.space is Space.HBM:
        return 0
    sizes = [min(g, n) for d, (g, n) in enumerate(zip(grain, buffer.shape, strict=True)) if d != buffer.partition_axis]
    return DTYPE_BYTES[buffer.dtype] * prod(sizes)


def _share(buffer: Buffer, grain: list[int]) -> float:
    """Return the part of a tile's partitions that one cell spans, from 0 to 1; 0 for a buffer in HBM."""
    axis = buffer.partition_axis
    if axis < 0 or not buffer.elements:
        return 0.0
    return min(grain[axis], buffer.shape[axis]) / buffer.shape[axis]


def _bank_share(buffer: Buffer, grain: list[int], accesses: Iterable[Access], trips: Mapping[int, int]) -> float:
    """Return the factor by which the bytes of a row of a PSUM cell are multiplied.

    With this factor, the cells of a tile that have the same columns count as one, and a tile smaller than a bank
    counts as a whole bank. Cells exist only for partitions that the program accesses, but a bank is occupied even if
    only one of its rows is used.
    """
    axis = buffer.partition_axis
    if axis < 0 or not buffer.elements:
        return 0.0
    touched: set[int] = set()
    for access in accesses:
        covered = extent(access, axis)
        starts = {access.start[axis].const}
        for loop, coef in access.start[axis].terms:
            starts = {start + coef * trip for start in starts for trip in range(trips[loop])}
        for first in (start + offset for start in starts for offset in covered.starts):
            touched.update(range(first // grain[axis], (first + covered.run - 1) // grain[axis] + 1))
    row_bytes = DTYPE_BYTES[buffer.dtype] * prod(buffer.shape[axis + 1 :])
    return max(1.0, PSUM_BANK_BYTES / row_bytes) / max(1, len(touched))


def cell_access(access: Access, buffer: Buffer, grid: Grid, space: tuple[tuple[int, int], ...]) -> CellAccess:
    """Return the cells that ``access`` covers in each execution.

    ``space`` lists the loops around the instruction as (id, trips), outermost first.
    """
    executions = prod([trips for _, trips in space])
    moving: np.ndarray[tuple[int, ...], np.dtype[np.int64]] | None = None
    fixed = 0
    offsets = [0]
    indirect = {item.dim for item in access.indirect}
    diagonal = any(dim.count > 1 and sum(step != 0 for step in dim.steps) > 1 for dim in access.dims)
    partial = bool(indirect) or diagonal
    for dim, (grain, stride) in enumerate(zip(grid.grain, grid.strides, strict=True)):
        if dim in indirect:
            offsets = [o + stride * i for o in offsets for i in range(ceil(buffer.shape[dim] / grain))]
            continue
        covered = extent(access, dim)
        first = covered.starts[0]
        begin = access.start[dim] + first
        if begin.terms:
            start = values(begin, space)
            aligned = grid.exact or not np.any(start % grain)
            moving = start // grain * stride + (0 if moving is None else moving)
        else:
            aligned = grid.exact or begin.const % grain == 0
            fixed += begin.const // grain * stride
        partial = partial or not covered.exact
        if grain == 1 and covered.run == 1:
            cells = [s - first for s in covered.starts]
        else:
            slack = 0 if aligned else grain - 1
            cells = sorted(
                {
                    cell
                    for s in covered.starts
                    for cell in range((s - first) // grain, (s - first + covered.run - 1 + slack) // grain + 1)
                }
            )
            apart = any((s - first) % grain for s in covered.starts)
            partial = partial or not aligned or apart or covered.run % grain != 0
        if cells != [0]:
            offsets = [o + stride * cell for o in offsets for cell in cells]
    places = [fixed] * executions if moving is None else (moving + fixed).tolist()
    return CellAccess(access.buffer, places, tuple(offsets), partial)


def values(expression: Affine, space: tuple[tuple[int, int], ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return the value of an affine expression in each execution of an instruction, in the order of execution.

    ``space`` lists the loops around the instruction as (id, trips), outermost first.
    """
    shape = tuple(trips for _, trips in space)
    result = np.full(shape, expression.const, dtype=np.int64)
    coefs = dict(expression.terms)
    for axis, (loop, trips) in enumerate(space):
        coef = coefs.get(loop)
        if coef:
            steps = np.arange(trips, dtype=np.int64) * coef
            result += steps.reshape((-1,) + (1,) * (len(space) - axis - 1))
    return result.reshape(-1)
