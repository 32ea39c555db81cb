"""Reduce tiles over free axes, and compose softmax, variance and similar functions of reductions."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any, cast

from acceld.nki.frontend.core import dtypes, names
from acceld.nki.frontend.core.context import refuse
from acceld.nki.frontend.core.elementwise import binary, broadcast_to, masked, operand, result, unary
from acceld.nki.frontend.core.index import as_number
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.frontend.core.views import conform
from acceld.nki.ir.program import Attr, Engine, Pattern


def free_axes(axis: object, tile: Tensor, call: str) -> tuple[int, ...]:
    """Return the axis numbers in an ``axis=`` argument, sorted. Raise LegalityError if the partition axis is
    one of them.
    """
    given = axis if isinstance(axis, Sequence) else [axis]
    axes = tuple(sorted(operator.index(cast("Any", a)) % tile.ndim for a in given))
    if 0 in axes:
        refuse(
            "reduce_axis",
            f"'{call}' can not reduce the partition dimension (axis 0)",
            "transpose the tile, or multiply with a vector of ones on the tensor engine",
        )
    return axes


def reduce(
    op: object,
    data: object,
    axis: object,
    *,
    mask: object = None,
    dtype: object = None,
    negate: bool = False,
    keepdims: bool = False,
    call: str = "tensor_reduce",
) -> Tensor:
    """Return a new tile in which the vector engine has folded the free axes ``axis`` of ``data`` with ``op``.

    ``negate`` negates the result. With ``keepdims`` the folded axes stay as axes of one element.
    """
    tile = operand(data, "data", call)
    name = names.reduce_op(op)
    axes = free_axes(axis, tile, call)
    if keepdims:
        shape = tuple(1 if k in axes else n for k, n in enumerate(tile.shape))
    else:
        shape = tuple(n for k, n in enumerate(tile.shape) if k not in axes)
    kind = dtypes.result_name(dtype, tile.dtype_name)
    patterns = masked(mask, tile.shape)
    if axes != tuple(range(tile.ndim - len(axes), tile.ndim)):
        tile, order = axes_last(tile, axes)
        patterns = tuple(Pattern(p.base, tuple(p.coefs[k] for k in order)) for p in patterns)
        dst_shape, axes = shape, tuple(range(tile.ndim - len(axes), tile.ndim))
        if keepdims:
            folded = reduce_into(tile, name, axes, tuple(n for n in tile.shape[: axes[0]]), kind, negate, patterns)
            return conform_to(folded, dst_shape)
    return reduce_into(tile, name, axes, shape, kind, negate, patterns)


def axes_last(tile: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...]]:
    """Return a view of ``tile`` with ``axes`` moved to the end, and for each axis of the view its number in
    ``tile``.
    """
    order = (*(k for k in range(tile.ndim) if k not in axes), *axes)
    return tile.like(replace(tile.access, dims=tuple(tile.access.dims[k] for k in order))), order


def reduce_into(
    tile: Tensor,
    op: str,
    axes: tuple[int, ...],
    shape: tuple[int, ...],
    kind: str,
    negate: bool,
    patterns: tuple[Pattern, ...],
) -> Tensor:
    """Emit an instruction that reduces the last free axes of ``tile``, and return its result.

    The result is a new tile of shape ``shape`` and dtype ``kind``. ``axes`` are the reduced axes.
    """
    attrs: dict[str, Attr] = {"op": op, "axes": axes, "negate": bool(negate)}
    return result("tensor_reduce", Engine.VECTOR, shape, kind, [tile], attrs=attrs, mask=patterns)


def conform_to(tile: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a view of ``tile`` in ``shape``, which differs from the tile's shape only in axes of one element."""
    made = conform(tile, shape)
    assert made is not None
    return made


def mean(
    x: object, axis: object, *, dtype: object = None, mask: object = None, keepdims: bool = False, **kwargs: Any
) -> Tensor:
    """Return the mean over the axes ``axis``, computed as the sum times 1/n: ``nl.mean``."""
    tile = operand(x, "x", "mean")
    count = prod(tile.shape[a] for a in free_axes(axis, tile, "mean"))
    total = reduce("add", tile, axis, mask=mask, dtype="float32", keepdims=keepdims, call="mean")
    return binary("multiply", total, 1.0 / count, dtype=dtype or tile.dtype)


def var(x: object, axis: object, *, dtype: object = None, mask: object = None, **kwargs: Any) -> Tensor:
    """Return the variance over the axes ``axis``, the mean squared distance from the mean: ``nl.var``."""
    tile = operand(x, "x", "var")
    middle = mean(tile, axis, dtype="float32", mask=mask, keepdims=True)
    distance = binary("subtract", tile, middle, dtype="float32", mask=mask)
    return mean(unary("square", distance, mask=mask), axis, dtype=dtype or tile.dtype, mask=mask)


def softmax(
    x: object, axis: object, *, dtype: object = None, compute_dtype: object = None, mask: object = None, **kwargs: Any
) -> Tensor:
    """Return exp(x - max) divided by its sum over the axes ``axis``: ``nl.softmax``."""
    tile = operand(x, "x", "softmax")
    inner = compute_dtype or "float32"
    top = reduce("max", tile, axis, mask=mask, dtype=inner, keepdims=True, call="softmax")
    shifted = binary("subtract", tile, top, dtype=inner, mask=mask)
    raised = unary("exp", shifted, mask=mask)
    total = reduce("add", raised, axis, mask=mask, keepdims=True, call="softmax")
    return binary("multiply", raised, unary("reciprocal", total), dtype=dtype or tile.dtype, mask=mask)


def rms_norm(
    x: object,
    w: object,
    axis: object,
    n: object,
    epsilon: float = 1e-6,
    *,
    dtype: object = None,
    compute_dtype: object = None,
    mask: object = None,
    **kwargs: Any,
) -> Tensor:
    """Return x / sqrt(sum(x²)/n + epsilon) * w: ``nl.rms_norm``."""
    tile = operand(x, "x", "rms_norm")
    count = as_number(n)
    if count is None:
        refuse(
            "operand_type",
            f"n of 'rms_norm' must be a number, not {type(n).__name__}",
            "pass the number of elements in a row",
        )
    inner = compute_dtype or "float32"
    squares = unary("square", tile, dtype=inner, mask=mask)
    total = reduce("add", squares, axis, mask=mask, keepdims=True, call="rms_norm")
    scaled = binary("add", binary("multiply", total, 1.0 / count), epsilon)
    normed = binary("multiply", tile, unary("rsqrt", scaled), dtype=inner, mask=mask)
    if not isinstance(w, Tensor):
        return binary("multiply", normed, w, dtype=dtype or tile.dtype, mask=mask)
    weight = broadcast_to(w, shape=tile.shape) if w.shape != tile.shape and w.shape[0] == 1 else w
    return binary("multiply", normed, weight, dtype=dtype or tile.dtype, mask=mask)
