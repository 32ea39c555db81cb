"""Relate the axes of an instruction's tiles to its iteration space.

Masks and patterns refer to the iteration space of an operation (:class:`acceld.nki.ir.operations.Operation`).
The *map* of a tile has one entry for each axis of the tile: the axis of the space along which that axis runs,
or -1 if it does not advance with the space. None in place of a map stands for a tile of another shape with the
same elements in row-major order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from acceld.nki.ir.operations import OPS, Trait, having
from acceld.nki.ir.program import Access, Instruction

AxisMap = tuple[int, ...]

_BY_ROW, _GATHERS = having(Trait.BY_ROW), having(Trait.GATHERS)


@dataclass(frozen=True, slots=True)
class Space:
    """The iteration space of an instruction: its shape, and for each source and destination the map from the tile's
    axes to the axes of the space.

    An immediate operand has the map None.
    """

    shape: tuple[int, ...]
    srcs: tuple[AxisMap | None, ...]
    dsts: tuple[AxisMap | None, ...]


@lru_cache(4096)
def align(shape: tuple[int, ...], space: tuple[int, ...]) -> AxisMap | None:
    """Return the map of an element-wise operand of shape ``shape`` into the iteration space ``space``; None if
    the shapes do not fit.

    Equal axes are matched in order. An axis of one element is broadcast.
    """
    if len(shape) == len(space):
        if all(n == m or n == 1 for n, m in zip(shape, space, strict=True)):
            return tuple(axis if n != 1 or m == 1 else -1 for axis, (n, m) in enumerate(zip(shape, space, strict=True)))
        return None
    if shape and space and shape[0] in (1, space[0]) and all(n == 1 for n in shape[1:]):
        return (0 if shape[0] == space[0] else -1, *(-1 for _ in shape[1:]))
    found: list[int] = []
    at = 0
    for n in shape:
        if n == 1:
            found.append(-1)
            continue
        while at < len(space) and space[at] == 1:
            at += 1
        if at == len(space) or space[at] != n:
            return None
        found.append(at)
        at += 1
    return tuple(found) if all(n == 1 for n in space[at:]) else None


def reduced_axes(instruction: Instruction) -> tuple[int, ...]:
    """Return the tile axes that a ``tensor_reduce`` folds, sorted; () if the attribute is malformed."""
    axes = instruction.attr("axes")
    if not isinstance(axes, tuple):
        return ()
    return tuple(sorted({axis for axis in axes if isinstance(axis, int)}))


def free_elements(shape: tuple[int, ...]) -> int:
    """Return the number of elements that an on-chip tile has in each partition."""
    return prod(shape[1:])


def iteration_space(instruction: Instruction) -> Space:
    """Return the iteration space of an instruction. This function never raises: for a tile whose shape does not fit
    the space, the result has None in place of the tile's map of axes.
    """
    op = instruction.op
    kind = OPS[op].space
    srcs = [src.shape if isinstance(src, Access) else None for src in instruction.srcs]
    dsts = [dst.shape for dst in instruction.dsts]
    if kind == "kmn":
        return _product_space(srcs, dsts)
    if kind == "src":
        shape = srcs[0] if srcs and srcs[0] is not None else ()
        return Space(shape, *_source_maps(instruction, shape, srcs, dsts))
    shape = dsts[0] if dsts else ()
    return Space(
        shape,
        tuple(None if src is None else _source_map(instruction, number, src, shape) for number, src in enumerate(srcs)),
        tuple(align(dst, shape) for dst in dsts),
    )


def _source_map(instruction: Instruction, number: int, src: tuple[int, ...], shape: tuple[int, ...]) -> AxisMap | None:
    if instruction.op in ("transpose", "dma_transpose"):
        axes = instruction.attr("axes") if instruction.op == "dma_transpose" else None
        if axes is None:
            axes = tuple(reversed(range(len(src))))
        if not isinstance(axes, tuple) or sorted(map(str, axes)) != sorted(map(str, range(len(src)))):
            return None
        where = {axis: position for position, axis in enumerate(axes)}
        return tuple(where[axis] for axis in range(len(src))) if len(src) == len(shape) else None
    if instruction.op in _GATHERS and number == 0:
        return (0 if src and shape and src[0] == shape[0] else -1, *(-1 for _ in src[1:]))
    if instruction.op in ("local_gather", "local_scatter") and number == 1:
        return (0, *(-1 for _ in src[1:]))
    return align(src, shape)


def _product_space(srcs: list[tuple[int, ...] | None], dsts: list[tuple[int, ...]]) -> Space:
    stationary, moving = (*srcs, None, None)[:2]
    if not stationary or not moving or not dsts:
        return Space((0, 0, 0), tuple(None for _ in srcs), tuple(None for _ in dsts))
    shape = (stationary[0], free_elements(stationary), free_elements(moving))
    maps = [(0, 1) if len(stationary) == 2 else None, (0, 2) if len(moving) == 2 else None]
    return Space(
        shape,
        (*maps, *(None for _ in srcs[2:])),
        tuple((1, 2) if len(dst) == 2 else None for dst in dsts),
    )


def _source_maps(
    instruction: Instruction,
    shape: tuple[int, ...],
    srcs: list[tuple[int, ...] | None],
    dsts: list[tuple[int, ...]],
) -> tuple[tuple[AxisMap | None, ...], tuple[AxisMap | None, ...]]:
    sources = tuple(None if src is None else align(src, shape) for src in srcs)
    if instruction.op == "tensor_reduce":
        axes = reduced_axes(instruction)
        kept = [axis for axis in range(len(shape)) if axis not in axes]
        return sources, tuple(_kept_map(dst, shape, kept) for dst in dsts)
    if instruction.op == "partition_reduce":
        return sources, tuple((-1, *range(1, len(dst))) for dst in dsts)
    if instruction.op in _BY_ROW:
        sources = tuple(
            found if number == 0 or src is None else (0, *(-1 for _ in src[1:]))
            for number, (src, found) in enumerate(zip(srcs, sources, strict=True))
        )
        return sources, tuple((0, *(-1 for _ in dst[1:])) for dst in dsts)
    return sources, tuple(align(dst, shape) for dst in dsts)


def _kept_map(dst: tuple[int, ...], shape: tuple[int, ...], kept: list[int]) -> AxisMap | None:
    if len(dst) == len(shape) and all(dst[axis] == shape[axis] for axis in kept):
        return tuple(axis if axis in kept else -1 for axis in range(len(shape)))
    found: list[int] = []
    left = list(kept)
    for n in dst:
        if left and shape[left[0]] == n:
            found.append(left.pop(0))
        elif n == 1:
            found.append(-1)
        else:
            return None
    return tuple(found) if all(shape[axis] == 1 for axis in left) else None
