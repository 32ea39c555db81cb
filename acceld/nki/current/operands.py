"""What the instructions share: checking operands, fitting shapes, emitting."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, cast

from acceld.nki.errors import LegalityError
from acceld.nki.frontend.elementwise import as_number, expand, operand, scalar_operand
from acceld.nki.frontend.names import reduce_op
from acceld.nki.frontend.state import current
from acceld.nki.frontend.tensor import Tensor
from acceld.nki.frontend.views import conform
from acceld.nki.program import Attr, Engine, Pattern

Number = float | int


def destination(value: object, call: str) -> Tensor:
    return operand(value, "dst", call)


def fitted(value: object, shape: tuple[int, ...], name: str, call: str) -> Tensor:
    """``value`` as a tile of ``shape``: axes of one element added, dropped or repeated."""
    tile = operand(value, name, call)
    view = conform(tile, shape)
    if view is None:
        view = expand(tile, shape)
    if view is None:
        raise LegalityError(
            f"operand '{name}' of '{call}' has shape {list(tile.shape)}, the destination {list(shape)}",
            rule="shape",
            line=current().line(),
            hint="both must have the same partition and free sizes",
        )
    return view


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
        raise LegalityError(f"'{name}' of '{call}' must be a number", rule="operand_type", line=current().line())
    return number


def word_of(value: object) -> str | None:
    return None if value is None else str(getattr(value, "name", value))


def integers(value: object) -> tuple[int, ...] | None:
    return tuple(operator.index(cast("Any", n)) for n in cast("Any", value)) or None if value else None


def tensor(value: object, name: str, call: str) -> Tensor:
    if isinstance(value, Tensor):
        return value
    raise LegalityError(
        f"operand '{name}' of '{call}' must be a tensor, not {type(value).__name__}",
        rule="operand_type",
        line=current().line(),
    )


def same(source: Tensor, target: Tensor, call: str) -> Tensor:
    """``source`` in the shape of ``target``, whatever the number of axes, as long as the elements agree."""
    if source.shape == target.shape:
        return source
    view = conform(source, target.shape)
    if view is None and source.access.elements == target.access.elements:
        view = source.reshape(target.shape)
    if view is None:
        view = expand(source, target.shape)
    if view is None:
        raise LegalityError(
            f"'{call}' in/out shape must match: dst {list(target.shape)}, src {list(source.shape)}",
            rule="shape",
            line=current().line(),
        )
    return view


def fold(op: object) -> str:
    return reduce_op(op)
