"""Check operands, fit their shapes, and emit instructions."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any, cast

from acceld.nki.errors import UnsupportedCall
from acceld.nki.frontend.core.context import Retrace, refuse
from acceld.nki.frontend.core.elementwise import operand, scalar_operand
from acceld.nki.frontend.core.index import as_number
from acceld.nki.frontend.core.names import reduce_op
from acceld.nki.frontend.core.state import current
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.frontend.core.views import conform, reshape
from acceld.nki.ir.program import Attr, Engine, Pattern, Space, TileDim

Number = float | int


def destination(value: object, call: str) -> Tensor:
    return operand(value, "dst", call)


def matched(dst: object, call: str, /, **sources: object) -> tuple[Tensor, ...]:
    """Return the destination and the sources by name as tiles of one shape.

    Axes of one element are added or dropped. Engines count elements, so tiles with equally many elements a partition
    fit too: all are split into the finest axes that any of them has. Nothing is repeated: AWS's compiler refuses tiles
    with unlike numbers of elements.
    """
    target = destination(dst, call)
    tiles = {name: operand(value, name, call) for name, value in sources.items()}
    views = {name: conform(tile, target.shape) for name, tile in tiles.items()}
    found = tuple(view for view in views.values() if view is not None)
    if len(found) == len(views):
        return (target, *found)
    axes = _common_axes((target, *tiles.values()))
    if axes is None:
        name = next(name for name, view in views.items() if view is None)
        refuse(
            "shape",
            f"operand '{name}' of '{call}' has shape {list(tiles[name].shape)}, the destination {list(target.shape)}",
            _repeating(tiles[name], target),
        )
    return tuple(split(tile, axes) for tile in (target, *tiles.values()))


def _repeating(tile: Tensor, target: Tensor) -> str:
    """Return what to write if the kernel means that ``tile`` is repeated to the shape of ``target``."""
    if tile.shape[0] == 1 < target.shape[0]:
        return "no engine repeats a partition: make a tile with nl.broadcast_to, or load one with src.broadcast(0, n)"
    if prod(tile.shape[1:]) == 1:
        return (
            "both must have as many elements a partition: nisa.tensor_scalar takes one element a partition as operand0, "
            "tile.broadcast(dim, n) repeats an axis"
        )
    return "both must have as many partitions, and as many elements in each; tile.broadcast(dim, n) repeats an axis"


def same_sizes(call: str, *named: tuple[str, Tensor]) -> None:
    """Refuse tiles that differ in partitions or in elements a partition."""
    (first, one), *rest = named
    for name, tile in rest:
        if (tile.shape[0], prod(tile.shape)) != (one.shape[0], prod(one.shape)):
            refuse(
                "shape",
                f"operands of '{call}' differ in size: {first}{list(one.shape)}, {name}{list(tile.shape)}",
                _repeating(tile, one) if prod(tile.shape) < prod(one.shape) else _repeating(one, tile),
            )


def _common_axes(tiles: Sequence[Tensor]) -> tuple[int, ...] | None:
    """Return the finest split of free axes that fits tiles with equally many elements; None if their axes do not nest."""
    if len({(tile.shape[0], tile.access.elements) for tile in tiles}) != 1 or any(t.access.indirect for t in tiles):
        return None
    return finest_axes([tile.shape[1:] for tile in tiles])


def finest_axes(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return axes into which all shapes of one size can be split; None if there are none."""
    cuts = sorted({prod(shape[at:]) for shape in shapes for at in range(len(shape) + 1)})
    if any(outer % inner for inner, outer in pairwise(cuts)):
        return None
    return tuple(reversed([outer // inner for inner, outer in pairwise(cuts)]))


def split(tile: Tensor, axes: tuple[int, ...], *, whole: bool = False) -> Tensor:
    """Return ``tile`` with its free axes split into the finer ``axes``; with ``whole`` that of the partitions too."""
    left = list(axes)
    dims: list[TileDim] = []
    for dim in reversed(tile.access.dims[not whole :]):
        inner = 1
        while inner < dim.count:
            count = left.pop()
            dims.append(TileDim(count, tuple(step * inner for step in dim.steps)))
            inner *= count
    return tile.like(replace(tile.access, dims=(*tile.access.dims[: not whole], *reversed(dims))))


def emit(
    operation: str,
    engine: Engine,
    dsts: Sequence[Tensor],
    srcs: Sequence[Tensor | Number | Pattern] = (),
    /,
    *,
    pattern: Pattern | None = None,
    **attrs: Attr,
) -> None:
    current().emit(operation, engine, list(dsts), list(srcs), attrs=attrs, pattern=pattern, accumulates=True)


def reduced(value: object, call: str) -> list[Tensor]:
    return [] if value is None else [operand(value, "reduce_res", call)]


def scalar(value: object, name: str, call: str, tile: Tensor) -> Tensor | Number | Pattern:
    return scalar_operand(value, name, call, tile.shape[0])


def number(value: object, name: str, call: str) -> Number:
    number = as_number(value)
    if number is None:
        refuse("operand_type", f"'{name}' of '{call}' must be a number")
    return number


def word_of(value: object) -> str | None:
    return None if value is None else str(getattr(value, "name", value))


def integers(value: object) -> tuple[int, ...] | None:
    return tuple(operator.index(cast("Any", n)) for n in cast("Any", value)) or None if value else None


def tensor(value: object, name: str, call: str) -> Tensor:
    if isinstance(value, Tensor):
        return value
    refuse("operand_type", f"operand '{name}' of '{call}' must be a tensor, not {type(value).__name__}")


def same(source: Tensor, target: Tensor, call: str) -> Tensor:
    """Return ``source`` in the shape of ``target``. The axes may differ if the number of elements agrees. A DMA repeats
    nothing by itself.
    """
    if source.shape == target.shape:
        return source
    view = conform(source, target.shape)
    if view is None and source.access.elements == target.access.elements:
        view = reshape(source, target.shape)
    if view is None:
        refuse(
            "shape",
            f"'{call}' in/out shape must match: dst {list(target.shape)}, src {list(source.shape)}",
            "to repeat rows or columns of a tensor in HBM, take src.broadcast(dim, n) of an axis of one element",
        )
    return view


def paired(target: Tensor, source: Tensor, call: str) -> tuple[Tensor, Tensor]:
    """Return both tiles of a copy in one shape: that of the tile on chip, whose partitions come first; else that of the
    target, or that of the source if only the target has a view of it.
    """
    if target.space is Space.HBM and source.space is not Space.HBM and target.shape != source.shape:
        view = conform(target, source.shape)
        if view is None and target.access.elements == source.access.elements:
            view = reshape(target, source.shape)
        if view is not None:
            return view, source
    try:
        return target, same(source, target, call)
    except (UnsupportedCall, Retrace) as failure:
        axes = finest_axes([target.shape, source.shape])
        if axes is not None and target.space is source.space is Space.SBUF:
            return split(target, axes, whole=True), split(source, axes, whole=True)
        try:
            return same(target, source, call), source
        except UnsupportedCall:
            raise failure from None


def fold(op: object) -> str:
    return reduce_op(op)
