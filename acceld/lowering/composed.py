"""Lower functions of numpy to other functions of numpy: statistics, searches, counts, interpolation, small matrix
products, and arrays made of parts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from acceld.lowering.arrays import FUNCTIONS, Traced, called, line_now, lowers, refused, wrapped
from acceld.lowering.bounds import GREATEST
from acceld.lowering.constants import placed
from acceld.lowering.functions import MOST_SORTED, positions, rows_of
from acceld.lowering.indexing import constant
from acceld.lowering.masked import Positions

MOST_TAPS = 64
"""Greatest number of taps of ``np.convolve``, each of which becomes a product of shifted arrays, and of columns of
``np.vander``.
"""


def _constants(name: str, value: Any) -> Any:
    """Return an argument of the numpy function ``name`` as a constant array. Raise NotLowered if it depends on an input."""
    found = value.known() if isinstance(value, Traced) else np.asarray(value)
    return (
        refused(f"np.{name} with points that depend on an input", "write the points as numbers")
        if found is None
        else found
    )


@lowers("select")
def _selected(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    pairs = list(zip(condlist, choicelist, strict=True))
    return functools.reduce(lambda other, pair: np.where(pair[0], pair[1], other), reversed(pairs), default)


@lowers("choose")
def _chosen_by_number(a: Any, choices: Sequence[Any], mode: str = "raise") -> Any:
    if mode != "raise":
        refused(f"np.choose(mode={mode!r})", "clip the numbers by np.clip first")
    return functools.reduce(lambda below, at: np.where(a >= at, choices[at], below), range(1, len(choices)), choices[0])


@lowers("isclose")
def _close(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
    if equal_nan:
        refused("np.isclose(equal_nan=True)", "compare np.isnan of both arrays")
    return np.abs(np.subtract(a, b)) <= atol + rtol * np.abs(b)


for _name in ("sum", "prod", "mean", "var", "std"):
    FUNCTIONS[f"nan{_name}"] = lambda a, *args, where=True, _name=_name, **named: called(
        _name, a, *args, where=np.equal(a, a) if where is True else np.equal(a, a) & where, **named
    )
for _name, _least in (("max", -GREATEST), ("min", GREATEST)):
    FUNCTIONS[f"nan{_name}"] = lambda a, *args, _name=_name, _least=_least, **named: called(
        _name, np.where(np.isnan(a), _least, a), *args, **named
    )


@lowers("cov")
def _covariance(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None) -> Any:
    if y is not None:
        refused("np.cov of two arrays", "stack the two arrays first")
    x = np.atleast_2d(m)
    x = x if rowvar or np.ndim(m) == 1 else x.T
    apart = x - np.mean(x, axis=1, keepdims=True)
    found = apart @ apart.T / (x.shape[1] - ((0 if bias else 1) if ddof is None else ddof))
    return found if len(x) > 1 else found.reshape(())


@lowers("corrcoef")
def _correlations(x: Any, y: Any = None, rowvar: bool = True) -> Any:
    if y is not None or np.ndim(x) != 2:
        refused("np.corrcoef of anything but one matrix", "stack the rows first")
    found = _covariance(x, rowvar=rowvar)
    spread = np.sqrt(np.diagonal(found))
    return found / spread[:, None] / spread


@lowers("trapezoid", "trapz")
def _area(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    turned = np.moveaxis(y, axis, -1)
    steps = dx if x is None else np.diff(x if np.ndim(x) == 1 else np.moveaxis(x, axis, -1), axis=-1)
    return (steps * (turned[..., 1:] + turned[..., :-1]) * 0.5).sum(-1)


@lowers("quantile")
def _quantile(a: Any, q: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    if np.ndim(q):
        each = [_quantile(a, one, axis, keepdims=keepdims) for one in np.ravel(q)]
        return np.stack(each).reshape((*np.shape(q), *each[0].shape))
    given, at = rows_of(a, axis)
    place = float(q) * (given.shape[-1] - 1)
    low = math.floor(place)
    ordered = np.sort(given, axis=-1)
    found = ordered[..., low] * 1.0
    if place > low:
        found = found + (ordered[..., low + 1] - found) * (place - low)
    return np.expand_dims(found, at) if keepdims else found


@lowers("percentile")
def _percentile(a: Any, q: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return _quantile(a, np.asarray(q) / 100.0, axis, keepdims=keepdims)


@lowers("searchsorted")
def _places(a: Any, v: Any, side: str = "left") -> Any:
    if np.size(a) > MOST_SORTED:
        refused(f"np.searchsorted in more than {MOST_SORTED} elements", "search parts of the array")
    edges, sought = wrapped(a), wrapped(v)[..., None]
    return Traced(np.sum(edges < sought if side == "left" else edges <= sought, axis=-1).view, "i")


@lowers("digitize")
def _digits(x: Any, bins: Any, right: bool = False) -> Any:
    edges = _constants("digitize", bins)
    if (np.diff(edges) < 0).any():
        refused("np.digitize with falling bins", "give rising bins")
    return _places(bins, x, "left" if right else "right")


@lowers("interp")
def _interpolated(x: Any, xp: Any, fp: Any) -> Any:
    at, values = _constants("interp", xp), _constants("interp", fp)
    found: Any = x * 0.0 + values[0]
    for start, end, first, last in zip(at, at[1:], values, values[1:], strict=False):
        found = found + np.clip(x - start, 0.0, end - start) * ((last - first) / (end - start))
    return found


@lowers("fmod", ufunc=True)
def _rest(x1: Any, x2: Any) -> Any:
    return np.sign(x1) * np.remainder(np.abs(x1), np.abs(x2))


@lowers("meshgrid")
def _grids(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    lines = [np.ravel(wrapped(one)) for one in xi]
    found = [line[tuple(slice(None) if at == n else None for at in range(len(lines)))] for n, line in enumerate(lines)]
    if indexing == "xy" and len(lines) > 1:
        found = [np.swapaxes(one, 0, 1) for one in found]
    return tuple(found) if sparse else np.broadcast_arrays(*found)


@lowers("gradient")
def _slope(f: Any, *spacing: Any, axis: Any = None) -> Any:
    if len(spacing) > 1 or (spacing and np.ndim(spacing[0])) or (np.ndim(f) > 1 and not isinstance(axis, int)):
        refused("np.gradient along several axes or with an array of places", "give axis= and one number")
    y = np.moveaxis(f, -1 if axis is None else axis, -1)
    inner = (y[..., 2:] - y[..., :-2]) * 0.5
    found = np.concatenate([y[..., 1:2] - y[..., :1], inner, y[..., -1:] - y[..., -2:-1]], axis=-1)
    return np.moveaxis(found / spacing[0] if spacing else found, -1, -1 if axis is None else axis)


@lowers("convolve")
def _convolved(a: Any, v: Any, mode: str = "full") -> Any:
    if np.size(a) < np.size(v):
        a, v = v, a
    n, taps = np.size(a), np.size(v)
    if taps > MOST_TAPS:
        refused(f"np.convolve with more than {MOST_TAPS} taps", "write it as a product with sliding windows")
    padded = np.pad(wrapped(a), (taps - 1, taps - 1))
    full = functools.reduce(np.add, (padded[taps - 1 - k : 2 * (taps - 1) + n - k] * v[k] for k in range(taps)))
    first, count = {"full": (0, n + taps - 1), "same": ((taps - 1) // 2, n), "valid": (taps - 1, n - taps + 1)}[mode]
    return full[first : first + count]


@lowers("matrix_power")
def _power_of_matrix(a: Any, n: int) -> Any:
    if n < 1:
        refused(f"np.linalg.matrix_power with exponent {n}", "use an exponent of at least 1")
    half = a if n == 1 else _power_of_matrix(a, n // 2)
    return half if n == 1 else half @ half @ a if n % 2 else half @ half


@lowers("kron")
def _kronecker(a: Any, b: Any) -> Any:
    if np.ndim(a) != 2 or np.ndim(b) != 2:
        refused("np.kron of anything but matrices", "reshape both to matrices")
    return (a[:, None, :, None] * b[None, :, None, :]).reshape(a.shape[0] * b.shape[0], a.shape[1] * b.shape[1])


@lowers("put_along_axis")
def _put(arr: Any, indices: Any, values: Any, axis: int | None) -> None:
    """Store values at positions along an axis, as ``np.put_along_axis`` does. Of several stores to a position, the last
    one counts.
    """
    if axis is None:
        refused("np.put_along_axis(axis=None)", "give an axis")
    at = int(axis) % arr.ndim  # type: ignore[arg-type]  # None is refused above
    here: Any = called("moveaxis", indices, at, -1)
    turned = np.moveaxis(arr, at, -1)
    wide = (*turned.shape, here.shape[-1])
    number = np.where(here < 0, here + turned.shape[-1], here)
    hits = np.equal(np.expand_dims(number, -2), positions(wide, len(wide) - 2))
    last = np.where(hits, positions(wide, len(wide) - 1), -1).max(axis=-1)
    chosen: Any = values
    if np.ndim(values):
        spread: Any = np.moveaxis(called("broadcast_to", values, indices.shape), at, -1)
        here_last = np.equal(np.expand_dims(last, -1), positions(wide, len(wide) - 1))
        chosen = np.where(here_last, np.expand_dims(spread, -2), 0.0).sum(axis=-1)
    arr.assign(np.moveaxis(np.where(last >= 0, chosen, turned), -1, at))


@lowers("cross")
def _cross_product(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    places = (axisa, axisb, axisc) if axis is None else (axis,) * 3
    first, second = (wrapped(called("moveaxis", one, at, -1)) for one, at in zip((a, b), places, strict=False))
    if first.shape[-1] != 3 or second.shape[-1] != 3:
        refused(
            "np.cross of vectors that do not have three elements",
            "write out a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]",
        )
    (ax, ay, az), (bx, by, bz) = ([one[..., at] for at in range(3)] for one in (first, second))
    return np.stack([ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx], axis=places[2])


@lowers("polyval")
def _polynomial(p: Any, x: Any) -> Any:
    found = x * 0 + p[0]
    for at in range(1, len(p)):
        found = found * x + p[at]
    return found


@lowers("vander")
def _powers(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    count = len(x) if N is None else int(N)
    if not 1 <= count <= MOST_TAPS:
        refused(f"np.vander with {count} columns", f"use 1 to {MOST_TAPS} columns")
    columns = [np.ones_like(x)]
    for _ in range(count - 1):
        columns.append(columns[-1] * x)
    return np.stack(columns if increasing else columns[::-1], axis=1)


@lowers("correlate")
def _correlated(a: Any, v: Any, mode: str = "valid") -> Any:
    if np.size(a) < np.size(v):
        refused("np.correlate with a second array that is longer", "swap the arrays and reverse the result")
    return _convolved(a, v[::-1], mode)


# -- counts


@lowers("histogram")
def _histogram(a: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None) -> Any:
    x, edges = np.ravel(a), _edges(a, bins, range)
    if np.size(edges) - 1 > MOST_SORTED:
        refused(f"np.histogram with more than {MOST_SORTED} bins", "count parts of the range")
    beyond = np.greater_equal(x, edges[:-1, None])
    last = (np.arange(np.size(edges) - 1) == np.size(edges) - 2)[:, None]
    below = np.where(last, np.less_equal(x, edges[1:, None]), np.less(x, edges[1:, None]))
    inside = np.logical_and(beyond, below)
    counts = np.sum(inside if weights is None else np.where(inside, np.ravel(weights), 0.0), axis=1)
    if density:
        return counts / (np.diff(edges) * np.sum(counts)), edges
    return counts, edges


def _edges(a: Any, bins: Any, limits: Any) -> Any:
    """Return the edges of a histogram's bins: the given edges, or equally spaced edges.

    Equally spaced edges go from the lower to the upper of ``limits``; from the least to the greatest element if ``limits``
    is None.
    """
    if np.ndim(bins):
        return wrapped(_constants("histogram", bins))
    if isinstance(bins, str):
        refused(f"np.histogram(bins={bins!r})", "give the number of bins")
    count = int(bins)
    if limits is not None:
        first, last = (float(one) for one in limits)
        return wrapped(np.linspace(*((first, last) if first != last else (first - 0.5, last + 0.5)), count + 1))
    first, last = np.min(a), np.max(a)
    share = Traced(placed(np.arange(count + 1) / count, "float32", line_now()))
    return np.where(share < 1.0, first + (last - first) * share, last)


_MOST_VALUES = 4096
"""Greatest number of values that np.bincount and np.isin compare with each element."""


@lowers("bincount")
def _counts(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    if not minlength:
        refused("np.bincount, whose length depends on values,", "give minlength=, one more than the greatest value")
    _refuse_many("np.bincount with minlength=", minlength)
    # For a greater number in ``x``, numpy's result has another shape, so the reference is no operator of one shape.
    hits = np.equal(np.ravel(x), np.arange(minlength)[:, None])
    return np.sum(hits if weights is None else np.where(hits, np.ravel(weights), 0.0), axis=1)


@lowers("isin")
def _among(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    _refuse_many("np.isin with test elements:", np.size(test_elements))
    found = np.any(np.equal(np.expand_dims(element, -1), np.ravel(test_elements)), axis=-1)
    return np.logical_not(found) if invert else found


def _refuse_many(what: str, count: int) -> None:
    """Raise NotLowered if a function would compare each element with more than ``_MOST_VALUES`` values."""
    if count > _MOST_VALUES:
        refused(f"{what} {count}", f"at most {_MOST_VALUES} values are compared with each element")


def _of_unknown_shape(name: str) -> None:
    """Make calls of a numpy function raise NotLowered, because the shape of its result depends on values."""
    FUNCTIONS[name] = lambda *args, **further: refused(
        f"np.{name}, whose shape depends on values,", "choose by np.where, or reduce what a mask selects"
    )


for _name in (
    "argwhere compress extract intersect1d setdiff1d trim_zeros union1d unique "
    "unique_all unique_counts unique_inverse unique_values"
).split():
    _of_unknown_shape(_name)


@lowers("nonzero")
def _nonzero(a: Any) -> Any:
    if a.known() is not None:
        return tuple(map(constant, np.nonzero(a.known())))
    if a.ndim != 1:
        refused("np.nonzero, whose shape depends on values,", "choose by np.where, or reduce what a mask selects")
    return (Positions(a if a.kind == "b" else a != 0, line_now()),)


FUNCTIONS["flatnonzero"] = lambda a: _nonzero(a.reshape(-1))[0]


# -- arrays made of parts


@lowers("column_stack")
def _beside(tup: Sequence[Any]) -> Any:
    columns = [wrapped(one) for one in tup]
    return np.concatenate([one if one.ndim > 1 else one.reshape(-1, 1) for one in columns], axis=1)


@lowers("dstack")
def _in_depth(tup: Sequence[Any]) -> Any:
    return np.concatenate([np.atleast_3d(wrapped(one)) for one in tup], axis=2)


@lowers("unstack")
def _apart(x: Any, /, *, axis: int = 0) -> Any:
    turned = np.moveaxis(x, axis, 0)
    return tuple(turned)


@lowers("block")
def _blocks(arrays: Any) -> Any:
    depth = _depth(arrays)
    rank = max(depth, *(np.ndim(one) for one in _leaves(arrays)))
    return _joined(arrays, depth, rank)


def _depth(arrays: Any) -> int:
    """Return how deeply the lists of ``np.block`` are nested."""
    return 1 + _depth(arrays[0]) if isinstance(arrays, list) else 0


def _leaves(arrays: Any) -> list[Any]:
    """Return the arrays in the nested lists of ``np.block``."""
    return [leaf for one in arrays for leaf in _leaves(one)] if isinstance(arrays, list) else [arrays]


def _joined(arrays: Any, depth: int, rank: int) -> Any:
    """Return the nested lists of ``np.block`` joined to one array of ``rank`` axes.

    The innermost lists are joined along the last axis. ``depth`` is how deeply the lists are nested.
    """
    if not depth:
        one = wrapped(arrays)
        return one.reshape((1,) * (rank - one.ndim) + one.shape)
    parts = [_joined(one, depth - 1, rank) for one in arrays]
    return np.concatenate(parts, axis=-depth) if len(parts) > 1 else parts[0]


@lowers("delete")
def _without(arr: Any, obj: Any, axis: int | None = None) -> Any:
    if axis is None:
        arr, axis = np.ravel(arr), 0
    extent = arr.shape[axis]
    return np.take(arr, np.delete(np.arange(extent), _places_named("delete", obj)), axis=axis)


@lowers("insert")
def _with(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    if axis is None:
        arr, axis = np.ravel(arr), 0
    at = axis % arr.ndim
    places = _places_named("insert", obj)
    given: Any = wrapped(values)
    given = given.reshape((1,) * (arr.ndim - given.ndim) + given.shape)
    one = np.ndim(places) == 0
    if one:
        given = np.moveaxis(given, 0, at)
    count = given.shape[at] if one or np.size(places) == 1 else np.size(places)
    given = np.broadcast_to(given, (*arr.shape[:at], count, *arr.shape[at + 1 :])).astype(arr.dtype)
    extent = arr.shape[at]
    # In the joined array, the new elements come after all old elements. numpy itself computes their order in the
    # result.
    order = np.insert(np.arange(extent), places, np.arange(extent, extent + count))
    return np.take(np.concatenate([arr, given], axis=at), order, axis=at)


def _places_named(name: str, obj: Any) -> Any:
    """Return the second argument of ``np.delete`` or ``np.insert`` as constant positions: a slice, a number or an array.

    Raise NotLowered if the positions depend on an input.
    """
    if isinstance(obj, slice):
        return obj
    found: Any = obj.known() if isinstance(obj, Traced) else np.asarray(obj)
    if found is None:
        refused(f"np.{name} at positions that depend on an input", "choose by np.where")
    return found if np.ndim(found) else int(found)
