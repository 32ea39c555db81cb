"""Lower indexing by arrays of positions: rows of a table, one element of each row, constant positions, and stores."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from acceld.lowering.arrays import (
    FUNCTIONS,
    LISTS,
    Traced,
    array_of,
    called,
    has_traced,
    kind_of,
    line_now,
    lowers,
    refused,
    wrapped,
)
from acceld.lowering.bounds import MOST_EXACT, bounds
from acceld.lowering.constants import counted, placed, runs, walks
from acceld.lowering.functions import positions
from acceld.lowering.graph import NotLowered, Shape, View, dense, fill, gathered, whole

MOST_RUNS = 64
"""Greatest number of runs of equally spaced constant positions in one index. Each run becomes one copy."""


@dataclass(frozen=True, slots=True)
class _Named:
    """An index with arrays of positions beside slices and numbers.

    ``base`` is the view that the slices and numbers select. ``arrays`` has the arrays of positions, and ``axes`` has
    the axes of ``base`` that these arrays index. ``place`` is the axis of the result at which numpy inserts the axes of
    the arrays.
    """

    base: Traced
    axes: tuple[int, ...]
    arrays: tuple[Any, ...]
    place: int

    @property
    def named(self) -> Shape:
        """Return the shape to which numpy broadcasts the arrays of positions."""
        return np.broadcast_shapes(*(one.shape for one in self.arrays))

    @property
    def rest(self) -> Shape:
        """Return the shape of the part of ``base`` that one position selects: the axes that no array indexes."""
        return tuple(n for axis, n in enumerate(self.base.shape) if axis not in self.axes)

    @property
    def shape(self) -> Shape:
        """Return the shape of the result of the index."""
        return (*self.rest[: self.place], *self.named, *self.rest[self.place :])


def _named(a: Traced, key: tuple[Any, ...]) -> _Named:
    """Return the index ``key`` of ``a``, with its arrays of positions separated from slices and numbers.

    Raise NotLowered for a mask, and IndexError for an array of floats.
    """
    key = tuple(wrapped(one) if has_traced(one) else np.asarray(one) if isinstance(one, LISTS) else one for one in key)
    at = next((place for place, one in enumerate(key) if one is Ellipsis), len(key))
    filled = a.ndim - sum(one is not None and one is not Ellipsis for one in key)
    key = (*key[:at], *(slice(None),) * filled, *key[at + 1 :])
    places = [place for place, one in enumerate(key) if isinstance(one, Traced | np.ndarray)]
    arrays = tuple(key[place] for place in places)
    if any(kind_of(one) == "b" for one in arrays):
        raise NotLowered("indexing by a mask is not lowered: its shape depends on values; use np.where", line_now())
    if any(kind_of(one) != "i" and one.size for one in arrays):
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    # numpy puts the axes of the arrays first if a slice or a new axis stands between arrays or numbers.
    advanced = [at for at, one in enumerate(key) if at in places or isinstance(one, int | np.integer)]
    apart = advanced[-1] - advanced[0] >= len(advanced) and any(one.ndim for one in arrays)
    others = tuple(slice(None) if at in places else one for at, one in enumerate(key))
    base = a if all(isinstance(one, slice) and one == slice(None) for one in others) else a[others]
    axes = tuple(sum(not isinstance(one, int | np.integer) for one in key[:place]) for place in places)
    return _Named(base, axes, arrays, 0 if apart else advanced[0])


def _moved(a: Any, axes: Sequence[int], to: Sequence[int]) -> Any:
    """Return a view of an array with the axes ``axes`` moved to the places ``to``, as ``np.moveaxis`` does."""
    if list(axes) == list(to):
        return a
    return a.part(lambda array: np.moveaxis(array, tuple(axes), tuple(to)))


@lowers("__getitem__")
def indexed(a: Traced, key: tuple[Any, ...]) -> Any:
    """Return a copy of the elements of ``a`` that an index with arrays of positions selects."""
    index = _named(a, key)
    base, axes, depth = index.base, index.axes, len(index.named)
    if len(axes) == 1:
        found = _taken(base, index.arrays[0], axes[0])
        return _moved(found, range(axes[0], axes[0] + depth), range(index.place, index.place + depth))
    if base.ndim == 2 and depth == 1 and _counts_rows(_values(index.arrays[0]), base.shape[0]):
        second = index.arrays[1]
        if isinstance(second, Traced) and second.ndim == 1:
            return _chosen(base, second.reshape((base.shape[0], 1)), 1).reshape(base.shape[0])
    flat: Any = _known(index)
    if flat is None or walks(flat.reshape(-1), MOST_RUNS) is None:
        flat = None
        for one, axis in zip(index.arrays, axes, strict=True):
            at = _counted(one, base.shape[axis])
            flat = at if flat is None else flat * base.shape[axis] + at
    first = _moved(base, axes, range(len(axes)))
    found = _taken(first.reshape((-1, *index.rest)), flat, 0)
    return _moved(found, range(depth), range(index.place, index.place + depth))


class Constants(np.ndarray[Any, Any]):
    """A constant array of a reference that can be indexed by positions that depend on inputs."""

    def __getitem__(self, key: Any) -> Any:
        if not has_traced([key]):
            return super().__getitem__(key)
        table = np.asarray(self)
        if not isinstance(key, Traced) or key.kind != "i" or len(table) > MOST_RUNS:
            return wrapped(table)[key]
        at = _within(key, len(table)).reshape((*key.shape, *(1,) * (table.ndim - 1)))
        rows = list(table) if table.ndim > 1 else table.tolist()
        found = np.broadcast_to(wrapped(rows[0]), (*key.shape, *table.shape[1:]))
        return functools.reduce(lambda below, row: np.where(at >= row, rows[row], below), range(1, len(rows)), found)


def constant(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a constant array as an array that can be indexed by positions that depend on inputs.

    An array without axes, or of another type than numbers, is returned unchanged.
    """
    return array.view(Constants) if array.dtype.kind in "biuf" and array.ndim else array


@lowers("ix_")
def _crossed(*args: Any) -> tuple[Any, ...]:
    """Return the positions of each axis, reshaped so that together they select every combination of positions."""
    given = [wrapped(one) if has_traced([one]) else np.asarray(one) for one in args]
    if any(kind_of(one) == "b" for one in given):
        refused("np.ix_ of a mask", "keep all elements, and choose by np.where")
    return tuple(one.reshape((-1, *(1,) * (len(given) - 1 - at))) for at, one in enumerate(given))


def _values(array: Any) -> np.ndarray[Any, Any] | None:
    """Return the values of an array of positions; None if the values depend on an input."""
    return array.known() if isinstance(array, Traced) else np.asarray(array)


def _known(index: _Named) -> np.ndarray[Any, Any] | None:
    """Return the constant positions that an index selects, counted through all axes that its arrays index; None if a
    position depends on an input. Raise IndexError for a position that is out of bounds.
    """
    flat = np.zeros(index.named, np.int64)
    for one, axis in zip(index.arrays, index.axes, strict=True):
        known, extent = _values(one), index.base.shape[axis]
        if known is None:
            return None
        if known.size and not (-extent <= known.min() and known.max() < extent):
            raise IndexError(f"a position is out of bounds for axis {axis} with size {extent}")
        flat = flat * extent + np.where(known < 0, known + extent, known)
    return flat


def _counted(array: Any, extent: int) -> Traced:
    """Return positions on an axis of ``extent`` elements, counted from the axis's start, as a traced array.

    ``array`` has positions that may be negative, and may be constant.
    """
    known = _values(array)
    if known is None:
        within: Traced = _within(array, extent)
        return within
    line = line_now()
    return Traced(placed(np.where(known < 0, known + extent, known).astype(np.float64), "float32", line), "i")


def _counts_rows(known: Any, rows: int) -> bool:
    """Tell whether ``known`` has the numbers 0 to ``rows - 1`` in order, so that it selects each row once."""
    return known is not None and known.shape == (rows,) and bool((known == np.arange(rows)).all())


def _within(indices: Traced, extent: int) -> Any:
    """Return positions counted from the start of an axis: ``extent`` is added where a position is negative.

    Raise IndexError if the positions are not integers.
    """
    if indices.kind != "i":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    return indices if bounds(indices.view)[0] >= 0 else np.where(indices < 0, indices + extent, indices)


@lowers("take")
def _taken(a: Any, indices: Any, axis: int | None = None, mode: str = "raise") -> Any:
    if mode != "raise":
        refused(f"np.take(mode={mode!r})", "clip the positions by np.clip first")
    a = wrapped(a)
    if axis is None:
        a, axis = a.reshape(-1), 0
    axis = int(axis) % a.ndim
    held = indices.known() if isinstance(indices, Traced) else np.asarray(indices)
    if held is not None:
        where = np.asarray(held, dtype=np.int64).reshape(-1)
        where = np.where(where < 0, where + a.shape[axis], where)
        if where.size and not (0 <= where.min() and where.max() < a.shape[axis]):
            raise IndexError(f"a position is out of bounds for axis {axis} with size {a.shape[axis]}")
        pieces = walks(where, MOST_RUNS)
        if pieces is not None:
            parts = [_walked(a, axis, *piece) for piece in pieces]
            joined = parts[0] if len(parts) == 1 else np.concatenate(parts, axis)
            return joined.reshape((*a.shape[:axis], *np.shape(held), *a.shape[axis + 1 :]))
        if (by_distance := _by_distance(where.reshape(np.shape(held)))) is not None:
            return _in_bands(_taken(a, by_distance, axis), np.shape(held), axis)
        try:
            indices = Traced(placed(where.reshape(np.shape(held)).astype(np.float64), "float32", line_now()), "i")
        except NotLowered:
            refused(
                f"indexing by {len(where)} constant positions without a pattern",
                f"use at most {MOST_RUNS} ranges of equal steps, or compute the positions by a few steps of np.arange",
            )
    indices = _within(wrapped(indices), a.shape[axis])
    table = Traced(array_of(a), a.kind).part(lambda array: np.moveaxis(array, axis, 0))
    found = Traced(whole(gathered(table.view, indices.view, line_now())), a.kind)
    if axis == 0:
        return found
    places = tuple(range(indices.ndim))
    return found.part(lambda array: np.moveaxis(array, places, tuple(axis + one for one in places)))


def _by_distance(where: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Return the element of the matrix ``where`` for each distance (column minus row), the least distance first.

    Return None if two elements of the same distance differ. Buckets of relative positions depend on the distance alone.
    """
    if where.ndim != 2 or not (where[1:, 1:] == where[:-1, :-1]).all():
        return None
    return np.concatenate([where[::-1, 0], where[0, 1:]])


def _in_bands(by_distance: Any, shape: Shape, axis: int) -> Any:
    """Return a matrix of elements from the element for each distance (column minus row).

    Axis ``axis`` becomes two axes, rows and columns, of the extents ``shape``.
    """
    windows: Any = np.lib.stride_tricks.sliding_window_view(by_distance, shape[1], axis=axis)
    return np.moveaxis(np.flip(windows, axis), -1, axis + 1)


def _walked(a: Any, axis: int, first: int, loops: Sequence[tuple[int, int]]) -> Any:
    """Return the elements of ``a`` at regularly spaced positions along ``axis``: from ``first`` on, by the loops
    (count, step), outermost first.
    """
    view = array_of(a)
    shape = (*view.shape[:axis], *(count for count, _ in loops), *view.shape[axis + 1 :])
    own = view.strides[axis]
    strides = (*view.strides[:axis], *(step * own for _, step in loops), *view.strides[axis + 1 :])
    found = Traced(View(view.node, shape, strides, view.offset + first * own), a.kind)
    return found.reshape((*view.shape[:axis], -1, *view.shape[axis + 1 :]))


def _run(first: int, step: int, count: int) -> slice:
    """Return the slice that selects ``count`` positions from ``first`` on, each ``step`` after the previous position."""
    end = first + step * count
    return slice(first, end if end >= 0 else None, step)


@lowers("take_along_axis")
def _chosen(arr: Any, indices: Any, axis: Any = -1) -> Any:
    """Return the elements at the given positions along an axis, as ``np.take_along_axis`` does.

    The kernel computes each element as a sum over the axis in which all other elements are replaced by zeros. Several
    elements of a long axis are read as rows of a table instead.
    """
    if axis is None:
        return _chosen(arr.reshape(-1), indices, 0)
    at = int(axis) % arr.ndim
    given = wrapped(indices)
    if at != arr.ndim - 1:
        turned: list[Any] = [called("moveaxis", one, at, -1) for one in (arr, given)]
        return np.moveaxis(_chosen(turned[0], turned[1], -1), -1, at)
    numbers = _within(given, arr.shape[at])
    if numbers.shape[-1] == 1:
        return Traced(np.where(numbers == positions(arr.shape, at), arr, 0).sum(-1, keepdims=True).view, arr.kind)
    lead = np.broadcast_shapes(arr.shape[:-1], numbers.shape[:-1])
    if (
        arr.shape[-1] >= LEAST_TABLE
        and numbers.shape[-1] < arr.shape[-1]
        and arr.size <= MOST_EXACT
        and lead == arr.shape[:-1]
    ):
        rows = counted((*lead, 1), (*(arr.shape[-1] * step for step in dense(lead)), 0), 0)
        found = _taken(
            np.reshape(arr, (-1, 1)), np.broadcast_to(numbers, (*lead, numbers.shape[-1])) + Traced(rows, "i"), 0
        )
        return found.reshape((*lead, numbers.shape[-1]))
    wide = (*lead, numbers.shape[-1], arr.shape[-1])
    here = np.expand_dims(numbers, -1) == positions(wide, len(wide) - 1)
    return Traced(np.where(here, np.expand_dims(arr, -2), 0).sum(-1).view, arr.kind)


LEAST_TABLE = 1024
"""Least length of an axis for which single elements are loaded from HBM by their positions.

Single elements of a shorter axis are computed as sums.
"""


@dataclass(frozen=True, slots=True)
class _Stores:
    """Stores to positions that arrays select, described as stores of rows in each batch.

    An axis that an array visits completely and in order, such as ``np.arange(n)[:, None]``, is a batch axis. ``into``
    is a view whose axes are the batch axes, then the other axes that arrays index, then all remaining axes. ``hits``
    [batches, rows, stores] is True where a store writes a row. ``index`` is the index of the reference. ``order`` has
    the axes of the index's arrays, batch axes first.
    """

    index: _Named
    into: Traced
    hits: Traced
    order: tuple[int, ...]

    @property
    def batches(self) -> Shape:
        """Return the extents of the batch axes."""
        return self.hits.shape[:-2]

    @property
    def rows(self) -> Shape:
        """Return the shape [batches, rows, rest] of the part of the array that an index may store to."""
        return (*self.hits.shape[:-1], *self.index.rest)

    def spread(self, value: Any) -> Any:
        """Return ``value`` broadcast to one value for each store, as an array [batches, stores, rest]."""
        place = self.index.place
        wide = wrapped(np.broadcast_to(value, self.index.shape))
        first = _moved(wide, [place + axis for axis in self.order], range(len(self.order)))
        return first.reshape((*self.batches, self.hits.shape[-1], *self.index.rest))

    def each(self, mask: Any) -> Any:
        """Return a mask of rows with more axes, so that it can be broadcast over the elements of each row."""
        return mask.reshape((*mask.shape, *(1,) * len(self.index.rest)))

    def assign(self, value: Any) -> None:
        """Store ``value``, an array [batches, rows, rest], to all rows."""
        self.into.assign(value.reshape(self.into.shape))


def _stores(a: Traced, key: tuple[Any, ...]) -> _Stores:
    """Return the stores to the positions of ``a`` that an index with arrays selects."""
    index = _named(a, key)
    base, named = index.base, index.named
    batches: dict[int, int] = {}  # axis along which an array has all positions, by array number
    for place, (one, axis) in enumerate(zip(index.arrays, index.axes, strict=True)):
        wide = (1,) * (len(named) - one.ndim) + tuple(one.shape)
        along = next((at for at, n in enumerate(wide) if n == base.shape[axis] == one.size), None)
        known = _values(one) if along is not None and along not in batches.values() else None
        if along is not None and known is not None and _counts_rows(known.reshape(-1), base.shape[axis]):
            batches[place] = along
    others = [place for place in range(len(index.arrays)) if place not in batches]
    axes = [index.axes[place] for place in (*batches, *others)]
    order = (*batches.values(), *(at for at in range(len(named)) if at not in batches.values()))
    flat: Any = None
    for place in others:
        at, extent = _counted(index.arrays[place], base.shape[index.axes[place]]), base.shape[index.axes[place]]
        flat = at if flat is None else flat * extent + at
    if flat is None:
        flat = Traced(whole(fill(0.0, (), "float32", line_now())), "i")
    extents = tuple(base.shape[index.axes[place]] for place in batches)
    numbers = _moved(np.broadcast_to(flat, named), order, range(len(order))).reshape((*extents, 1, -1))
    count = math.prod(base.shape[index.axes[place]] for place in others)
    wide = (*extents, count, numbers.shape[-1])
    hits = np.equal(numbers, positions(wide, len(extents)))
    return _Stores(index, _moved(base, axes, range(len(axes))), hits, order)


def _add_to_constant_rows(a: Traced, held: np.ndarray[Any, Any], b: Any) -> None:
    """Add values to those rows of ``a`` whose numbers are in ``held``, which are constants.

    Values for the same row at equal distances are a run, which is added as one sum. Raise NotLowered for too many runs,
    and IndexError for a number that is no row.
    """
    if held.dtype.kind not in "iu" or (held.size and not (0 <= held.min() and held.max() < a.shape[0])):
        raise IndexError(f"a position is no integer, or out of bounds for axis 0 with size {a.shape[0]}")
    pieces = [(row, runs(np.flatnonzero(held.reshape(-1) == row))) for row in range(a.shape[0])]
    count = sum(len(found) for _, found in pieces)
    if count > MOST_RUNS:
        refused(f"np.add.at with {count} runs of constant positions", f"use at most {MOST_RUNS} runs for all rows")
    spread: Any = np.broadcast_to(b, (*held.shape, *a.shape[1:])).reshape((held.size, *a.shape[1:]))
    for row, found in pieces:
        for piece in found:
            a[row] = a[row] + spread[_run(*piece)].sum(axis=0)


def _stored_to_runs(a: Traced, key: tuple[Any, ...], value: Any) -> bool:
    """Store to constant positions, by a slice for each run of equal steps, and return True.

    Return False, without a store, for any other index, and for positions on several axes with too many runs. Raise
    NotLowered for too many runs on one axis, and IndexError for a position that is out of bounds.
    """
    index = _named(a, key)
    known = _known(index)
    if known is None:
        return False
    where = known.reshape(-1)
    last = {int(row): number for number, row in enumerate(where)}  # of several stores to a row, the last one counts
    rows = np.array(list(last), dtype=np.int64)
    pieces = runs(rows)
    numbers = np.array(list(last.values()), dtype=np.int64)
    into, flat = _moved(index.base, index.axes, range(len(index.axes))), (-1, *index.rest)
    if len(index.axes) > 1:
        if len(pieces) > MOST_RUNS or array_of(into).in_shape(flat) is None:
            return False
        into = into.part(lambda array: np.reshape(array, flat, copy=False))
    if len(pieces) > MOST_RUNS:
        refused(f"a store to {len(pieces)} runs of constant positions", f"use at most {MOST_RUNS} runs of equal steps")
    if np.ndim(value):
        depth = len(index.named)
        wide = wrapped(np.broadcast_to(value, index.shape))
        first = _moved(wide, range(index.place, index.place + depth), range(depth))
        value = _taken(first.reshape((where.size, *index.rest)), numbers, 0)
    at = 0
    for piece in pieces:
        into[_run(*piece)].assign(value[at : at + piece[2]] if np.ndim(value) else value)
        at += piece[2]
    return True


@lowers("__setitem__")
def _stored(a: Traced, key: tuple[Any, ...], value: Any) -> None:
    """Store ``value`` to the positions that an index with arrays selects. Of several stores to a position, the last one
    counts.
    """
    if _stored_to_runs(a, key, value):
        return
    stores = _stores(a, key)
    hits, count = stores.hits, stores.hits.shape[-1]
    chosen: Any = value
    if count == 1:
        stored = hits[..., 0]
        if np.ndim(value):
            chosen = stores.spread(value)
    else:
        last: Any = np.where(hits, positions(hits.shape, hits.ndim - 1), -1).max(axis=-1)
        stored = last >= 0
        if np.ndim(value):
            at: Any = np.maximum(last, 0)
            if stores.batches:
                batch = np.arange(math.prod(stores.batches)).reshape((*stores.batches, 1))
                at = at + batch * count
            table = stores.spread(value).reshape((-1, *stores.index.rest))
            chosen = _taken(table, Traced(at.view, "i"), 0)
    stores.assign(np.where(stores.each(stored), chosen, stores.into.reshape(stores.rows)))


def _extreme_at(ufunc: Any, a: Any, indices: Any, b: Any) -> None:
    """Lower ``np.maximum.at`` and ``np.minimum.at``: store the greater or the smaller of an element and its new values."""
    if not isinstance(a, Traced):
        refused(f"np.{ufunc.__name__}.at to a constant array", "make the array by np.zeros or np.full")
    stores = _stores(a, indices if isinstance(indices, tuple) else (indices,))
    batches = len(stores.batches)
    held = stores.into.reshape(stores.rows)
    each = np.where(
        stores.each(stores.hits), np.expand_dims(stores.spread(b), batches), np.expand_dims(held, batches + 1)
    )
    stores.assign(ufunc(held, ufunc.reduce(each, axis=batches + 1)))


FUNCTIONS["maximum.at"] = functools.partial(_extreme_at, np.maximum)
FUNCTIONS["minimum.at"] = functools.partial(_extreme_at, np.minimum)


@lowers("add.at")
def _added(a: Any, indices: Any, b: Any) -> None:
    """Add values to the positions that ``indices`` selects. A position that is selected twice gets both values."""
    key = indices if isinstance(indices, tuple) else (indices,)
    if not isinstance(a, Traced):
        refused("np.add.at to a constant array", "make the array by np.zeros")
    held = _values(key[0]) if isinstance(key[0], Traced | np.ndarray | list) else None
    if held is not None and all(isinstance(one, slice) and one == slice(None) for one in key[1:]):
        _add_to_constant_rows(a, np.where(held < 0, held + a.shape[0], held), b)
        return
    stores = _stores(a, key)
    spread = stores.spread(b)
    if stores.hits.shape[-1] == 1:
        added = np.where(stores.each(stores.hits[..., 0]), spread, 0)
    else:
        flat = spread.reshape((*spread.shape[: len(stores.batches) + 1], -1))
        added = (np.where(stores.hits, 1.0, 0.0) @ flat).reshape(stores.rows)
    stores.assign(stores.into.reshape(stores.rows) + added)
