"""Split, merge and order the axes of operands. An axis is a pair of its extent and its stride."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from acceld.lowering.graph import Shape, dense

PARTITIONS = 128
DEEPEST = 16384
"""Greatest number of terms over which a matrix product sums.

A partition has room for two copies of a left operand of this length: rows, and transposed rows.
"""
FEW_TERMS = 42
"""Most terms on the last axis of a matrix product's sum beside which terms of other axes lie on partitions."""
MOST_AXES = 4
"""Greatest number of axes of an instruction's access pattern within a partition."""
LEAST_RUN = 16
"""Least number of contiguous elements for which columns are transferred in memory order and then reordered on the chip.
"""

Axes = tuple[tuple[int, int], ...]
"""Axes as pairs (extent, stride). Strides count elements."""


def squeezed(shape: Sequence[int], strides: Sequence[int]) -> Axes:
    """Return the axes that have more than one element, as pairs (extent, stride)."""
    return tuple((n, s) for n, s in zip(shape, strides, strict=True) if n != 1)


def refined(first: Sequence[int], second: Sequence[int]) -> Shape | None:
    """Return the coarsest shape into which the axes of ``first`` and of ``second`` can be split; None if there is no
    such shape.

    For example, (6, 4) and (2, 12) can both be split into (2, 3, 4).
    """
    a, b = list(first), list(second)
    found: list[int] = []
    while a and b:
        less = min(a[-1], b[-1])
        if a[-1] % less or b[-1] % less:
            return None
        found.append(less)
        for side in (a, b):
            side[-1] //= less
            if side[-1] == 1:
                side.pop()
    return None if a or b else tuple(found[::-1])


def split(axes: Axes, extents: Sequence[int]) -> Axes:
    """Return ``axes`` split into axes of the given ``extents``."""
    found: list[tuple[int, int]] = []
    wanted = list(extents)
    for extent, stride in reversed(axes):
        while extent > 1:
            part = wanted.pop()
            found.append((part, stride))
            stride *= part
            extent //= part
    return tuple(found[::-1])


def prefix(axes: Axes, total: int) -> tuple[Axes, Axes] | None:
    """Divide axes into leading axes with ``total`` elements together, and all axes after them.

    An axis that would belong to both parts is split. Return None if there is no such division.
    """
    lead: list[tuple[int, int]] = []
    rest = list(axes)
    while total > 1:
        if not rest:
            return None
        extent, stride = rest.pop(0)
        if total % extent == 0:
            lead.append((extent, stride))
            total //= extent
        elif extent % total == 0:
            lead.append((total, stride * (extent // total)))
            rest.insert(0, (extent // total, stride))
            total = 1
        else:
            return None
    return tuple(lead), tuple(rest)


def merged(axes: Iterable[Axes]) -> list[Axes]:
    """Return the axes of each operand, where neighboring axes are merged into one if all operands allow that.

    All operands have the same extents. Two axes can be merged if one stride steps through both of them.
    """
    found = [list(one) for one in axes]
    if not found:
        return []
    at = 0
    while at + 1 < len(found[0]):
        if all(one[at][1] == one[at + 1][1] * one[at + 1][0] and one[at + 1][1] >= 0 for one in found):
            for one in found:
                one[at : at + 2] = [(one[at][0] * one[at + 1][0], one[at + 1][1])]
        else:
            at += 1
    return [tuple(one) for one in found]


def in_slices(rows: Sequence[Axes], shapes: Sequence[Shape]) -> list[Axes]:
    """Return the row axes of each operand, divided so that each row axis runs along a single axis of the operand's
    tensor.

    Slices can then select the rows. ``rows`` has the row axes of each operand, with equal extents for all operands.
    ``shapes`` has the shape of each operand's tensor.
    """
    extents: Shape = tuple(n for n, _ in rows[0]) if rows else ()
    for axes, shape in zip(rows, shapes, strict=True):
        parts: list[int] = []
        for extent, stride in axes:
            within: list[int] = []
            while (room := _room(stride, shape)) > 1 and extent > room and extent % room == 0:
                within.insert(0, room)
                extent, stride = extent // room, stride * room
            parts += [extent, *within]
        extents = refined(extents, parts) or extents
    found = [list(split(axes, extents)) for axes in rows]
    at = 0
    while at + 1 < len(extents):
        together = extents[at] * extents[at + 1]
        alike = all(one[at][1] == one[at + 1][1] * one[at + 1][0] and one[at + 1][1] >= 0 for one in found)
        inside = all(
            together <= (_room(one[at + 1][1], shape) or together) for one, shape in zip(found, shapes, strict=True)
        )
        if not (alike and inside):
            at += 1
            continue
        for one in found:
            one[at : at + 2] = [(together, one[at + 1][1])]
        extents = (*extents[:at], together, *extents[at + 2 :])
    return [tuple(one) for one in found]


def _room(stride: int, shape: Shape) -> int:
    """Return how many steps of ``stride`` stay on one axis of a tensor of ``shape``; 0 if the stride fits no axis."""
    for extent, step in zip(shape, dense(shape), strict=True):
        if stride and stride >= step and stride % step == 0:
            return max(1, extent * step // stride)
    return 0


def largest_divisor(number: int, limit: int, least: int = 1) -> int:
    """Return the largest divisor of ``number`` that is at most ``limit``; 0 if that divisor is below ``least``."""
    found = next(d for d in range(min(number, limit), 0, -1) if number % d == 0)
    return found if found >= least else 0


def block_of(extent: int) -> int:
    """Return the number of partitions that each block of terms takes in a matrix product that sums over ``extent``
    terms.
    """
    return extent if extent <= PARTITIONS else (largest_divisor(extent, PARTITIONS, 64) or PARTITIONS)


def blocks_of(extent: int, part: int = 0) -> list[tuple[int, int, int]]:
    """Return the loops over the blocks of an axis, each as (trips, first element, block size).

    The first loop has the full blocks. A second loop has the smaller block at the end, if there is one. ``part`` is the
    size of a full block; 0 stands for the size that :func:`block_of` returns.
    """
    size = part or block_of(extent)
    rest = [(1, extent // size * size, extent % size)] if extent % size else []
    return ([(extent // size, 0, size)] if extent >= size else []) + rest


def cut_behind(
    extents: Sequence[int], rows: Sequence[Axes], axis: int, part: int
) -> tuple[list[int], list[Axes], list[Axes]]:
    """Divide the axes of each operand into rows and columns: (extents of the rows, row axes, column axes).

    Axis number ``axis`` is split into an outer axis and an inner axis of ``part`` elements. The columns are the inner
    axis and all axes after it. Row axes and column axes are returned for each operand.
    """
    left = extents[axis] // part
    heads = [(*one[:axis], *(((left, one[axis][1] * part),) if left > 1 else ())) for one in rows]
    columns = [(*(((part, one[axis][1]),) if part > 1 else ()), *one[axis + 1 :]) for one in rows]
    return [*extents[:axis], *((left,) if left > 1 else ())], heads, columns


def divided(axes: Axes, at: int, part: int) -> Axes:
    """Return ``axes`` with the axis number ``at`` split into an outer axis and an inner axis of ``part`` elements."""
    extent, stride = axes[at]
    return (*axes[:at], (extent // part, stride * part), (part, stride), *axes[at + 1 :])


def lying_together(axes: Axes) -> Axes:
    """Return a single axis of stride 1 if ``axes`` together cover contiguous elements, in any order. Return other
    axes unchanged.
    """
    ordered = merged([tuple(sorted(axes, key=lambda axis: -axis[1]))])[0]
    return ordered if len(ordered) == 1 and ordered[0][1] == 1 else axes


def lying_order(axes: Axes) -> list[int] | None:
    """Return the numbers of the axes in the order in which the elements lie in memory: the largest stride first.

    Return None if reordering would not help: the last axis has stride 1, or no ``LEAST_RUN`` elements lie beside each
    other. Also return None if a stride is not positive, or if no instruction can reorder so many axes.
    """
    if not 2 <= len(axes) <= MOST_AXES or axes[-1][1] == 1 or any(stride <= 0 for _, stride in axes):
        return None
    order = sorted(range(len(axes)), key=lambda at: -axes[at][1])
    extent, stride = merged([tuple(axes[at] for at in order)])[0][-1]
    return order if stride == 1 and extent >= LEAST_RUN else None


def on_tile(axes: Axes, held: Axes) -> Axes:
    """Return ``axes`` with the strides that they have in a tile into which the axes ``held`` were loaded in order.

    ``axes`` and ``held`` go through the same elements of HBM.
    """
    if not held or lying_together(held) != held or held == ((held[0][0], 1),):
        return axes
    found = []
    for extent, stride in axes:
        places = zip(held, dense([n for n, _ in held]), strict=True)
        step = next((d * (stride // s) for (n, s), d in places if s and stride % s == 0 and stride // s < n), 0)
        found.append((extent, step))
    return tuple(found)
