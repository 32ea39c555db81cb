"""Compute which elements of a buffer an access reaches: index bounds, boxes, overlap.

All functions work on affine expressions alone. Their cost depends on the size of the expressions, never on
numbers of iterations or sizes of tiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import ceil, floor, gcd

from acceld.nki.ir.program import Access, Affine, Buffer, Pattern, TileDim
from acceld.nki.ir.spaces import AxisMap


@dataclass(frozen=True, slots=True)
class Box:
    """A box of buffer elements: in dimension ``d``, the ``extents[d]`` indices from ``starts[d]`` on.

    If ``dense`` is True, the accesses that the box stands for reach every element of the box. Otherwise the
    accesses may reach only some of these elements.
    """

    starts: tuple[Affine, ...]
    extents: tuple[int, ...]
    dense: bool = True

    @property
    def empty(self) -> bool:
        """Tell whether the box contains no element."""
        return any(extent <= 0 for extent in self.extents)

    def holds(self, other: Box, trips: Mapping[int, int]) -> bool:
        """Tell whether this box is dense and contains every element of ``other`` in each iteration.

        ``trips`` gives the number of iterations by loop id.
        """
        if not self.dense:
            return False
        for mine, extent, its, size in zip(self.starts, self.extents, other.starts, other.extents, strict=True):
            if mine == its:
                low = high = 0
            else:
                low, high = (its + mine.scale(-1)).bounds(trips)
            if low < 0 or high + size > extent:
                return False
        return True

    def without(self, loop: int, trips: int) -> Box | None:
        """Return the smallest box that contains the elements of this box in all ``trips`` iterations of ``loop``.

        The result is dense if these elements are known to fill the result.
        """
        starts, extents, dense = list(self.starts), list(self.extents), self.dense
        moved = False
        for d, start in enumerate(self.starts):
            coef = coefficient(start, loop)
            if not coef:
                continue
            dense = dense and not moved and abs(coef) <= extents[d]
            moved = True
            reach = coef * (trips - 1)
            starts[d] = start + Affine(min(0, reach), ((loop, -coef),))
            extents[d] += abs(reach)
        return Box(tuple(starts), tuple(extents), dense)

    def merged(self, other: Box) -> Box | None:
        """Return one dense box with the elements of both boxes; None if their union is not known to be a box."""
        if not (self.dense and other.dense):
            return None
        differs = -1
        for d in range(len(self.starts)):
            if self.starts[d] == other.starts[d] and self.extents[d] == other.extents[d]:
                continue
            if differs >= 0:
                return None
            differs = d
        if differs < 0:
            return self
        gap = other.starts[differs] + self.starts[differs].scale(-1)
        if gap.terms:
            return None
        first, second, shift = (self, other, gap.const) if gap.const >= 0 else (other, self, -gap.const)
        if shift > first.extents[differs]:
            return None
        extents = list(first.extents)
        extents[differs] = max(first.extents[differs], shift + second.extents[differs])
        return Box(first.starts, tuple(extents), True)


def coefficient(value: Affine, loop: int) -> int:
    """Return the coefficient of the variable of ``loop`` in ``value``; 0 if ``value`` does not depend on that
    loop.
    """
    for number, coef in value.terms:
        if number == loop:
            return coef
    return 0


def box(access: Access) -> Box:
    """Return the box of the elements that an access reaches. Run-time indices are left out."""
    first, extents, dense = _reach(access.dims, len(access.start))
    if any(first):
        return Box(tuple([start + low for start, low in zip(access.start, first, strict=True)]), extents, dense)
    return Box(access.start, extents, dense)


def apart(one: Access, other: Access, trips: Mapping[int, int]) -> bool:
    """Tell whether two accesses of one buffer are proved to share no element in any iteration."""
    unknown = {indirect.dim for access in (one, other) for indirect in access.indirect}
    mine, its = box(one), box(other)
    if mine.empty or its.empty:
        return True
    for d, (start, size, begin, extent) in enumerate(
        zip(mine.starts, mine.extents, its.starts, its.extents, strict=True)
    ):
        if d in unknown:
            continue
        shift = begin + start.scale(-1)
        low, high = shift.bounds(trips)
        if low >= size or high + extent <= 0:
            return True
        steps = [dim.steps[d] for access in (one, other) for dim in access.dims if dim.count > 1]
        common = gcd(*steps, *(coef for _, coef in shift.terms))
        if common and shift.const % common:
            return True
    return False


@lru_cache(4096)
def _reach(dims: tuple[TileDim, ...], rank: int) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """Return the box of a tile that starts at 0, and whether the tile reaches every element of that box.

    The box is given by its least index and its number of indices in each buffer dimension.
    """
    first, extents, dense = [0] * rank, [1] * rank, True
    moves = [(abs(step), step, dim.count, d) for dim in dims for d, step in enumerate(dim.steps) if step]
    for dim in dims:
        dense = dense and (dim.count <= 1 or sum(step != 0 for step in dim.steps) <= 1)
        if dim.count <= 0:
            return (0,) * rank, (0,) * rank, True
    for size, step, count, d in sorted(moves):
        if count <= 1:
            continue
        dense = dense and size <= extents[d]
        reach = step * (count - 1)
        first[d] += min(0, reach)
        extents[d] += abs(reach)
    return tuple(first), tuple(extents), dense


def index_bounds(
    access: Access,
    dim: int,
    trips: Mapping[int, int],
    mask: Iterable[Pattern] = (),
    axes: AxisMap | None = None,
) -> tuple[int, int]:
    """Return the least and the greatest index in buffer dimension ``dim`` over all elements inside ``mask``.

    Run-time indices are left out. ``axes`` maps the tile's axes to the mask's axes. The bounds are exact for one mask
    over one axis; otherwise the true range may be smaller.
    """
    const, loops = access.start[dim].const, dict(access.start[dim].terms)
    steps = {axis: tile.steps[dim] for axis, tile in enumerate(access.dims) if tile.steps[dim] and tile.count > 1}
    counts = {axis: access.dims[axis].count for axis in steps}
    low, high = _interval(const, loops, steps, trips, counts)
    if axes is None:
        return low, high
    for pattern in mask:
        slopes = {
            axis: pattern.coefs[where]
            for axis, where in enumerate(axes)
            if 0 <= where < len(pattern.coefs) and pattern.coefs[where] and access.dims[axis].count > 1
        }
        covered = {where for axis, where in enumerate(axes) if axis in slopes}
        if any(coef and where not in covered for where, coef in enumerate(pattern.coefs)):
            continue
        terms = dict(pattern.base.terms)
        spans = {axis: access.dims[axis].count for axis in slopes} | counts
        for ratio in _ratios(loops, terms) | _ratios(steps, slopes):
            shifted_const = const + ratio * pattern.base.const
            shifted_loops = {i: loops.get(i, 0) + ratio * terms.get(i, 0) for i in loops.keys() | terms.keys()}
            shifted_steps = {k: steps.get(k, 0) + ratio * slopes.get(k, 0) for k in steps.keys() | slopes.keys()}
            least, most = _interval(shifted_const, shifted_loops, shifted_steps, trips, spans)
            if ratio > 0:
                high = min(high, floor(most))
            else:
                low = max(low, ceil(least))
    return low, high


def _ratios(index: Mapping[int, int], mask: Mapping[int, int]) -> set[Fraction]:
    return {Fraction(-index[key], mask[key]) for key in index.keys() & mask.keys()}


def _interval(
    const: int | Fraction,
    loops: Mapping[int, int | Fraction],
    steps: Mapping[int, int | Fraction],
    trips: Mapping[int, int],
    counts: Mapping[int, int],
) -> tuple[int, int]:
    low: int | Fraction = const
    high: int | Fraction = const
    for loop, coef in loops.items():
        reach = coef * max(0, trips[loop] - 1)
        low, high = low + min(0, reach), high + max(0, reach)
    for axis, step in steps.items():
        reach = step * max(0, counts[axis] - 1)
        low, high = low + min(0, reach), high + max(0, reach)
    return floor(low), ceil(high)


def free_axes(access: Access, buffer: Buffer) -> int:
    """Return the number of free axes that an engine has to step through.

    Neighboring axes count as one if their elements follow each other with a single stride.
    """
    free = [dim for dim in access.dims[1:] if dim.count > 1]
    linear = [
        (dim.count, sum(step * size for step, size in zip(dim.steps, buffer.strides, strict=True))) for dim in free
    ]
    return len(free) - sum(outer == count * inner for (_, outer), (count, inner) in pairwise(linear))
