"""Lower reads at arrays of positions: rows of a table, one element of each row, and constant positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from acceld.lowering.arrays import Traced, array_of, called, has_traced, kind_of, line_now, lowers, refused, wrapped
from acceld.lowering.bounds import bounds
from acceld.lowering.constants import placed, runs
from acceld.lowering.functions import positions
from acceld.lowering.graph import NotLowered, gathered, whole

MOST_RUNS = 64
"""Most runs of equally spaced positions in one index. Each run becomes a copy."""


@lowers("__getitem__")
def indexed(a: Traced, key: tuple[Any, ...]) -> Any:
    """Return a copy of the elements of ``a`` that an index with arrays of positions selects."""
    line = line_now()
    if any(one is None for one in key):
        refused("indexing by an array beside None", "index in two steps")
    if Ellipsis in [one for one in key if not isinstance(one, Traced | np.ndarray | list)]:
        at = next(place for place, one in enumerate(key) if one is Ellipsis)
        key = (*key[:at], *(slice(None),) * (a.ndim - len(key) + 1), *key[at + 1 :])
    key = tuple(wrapped(one) if has_traced(one) else one for one in key)
    key = tuple(np.asarray(one) if isinstance(one, list) else one for one in key)
    if any(isinstance(one, Traced | np.ndarray) and kind_of(one) == "b" for one in key):
        raise NotLowered("indexing by a mask is not lowered: its shape depends on values; use np.where", line)
    held = [one.known() if isinstance(one, Traced) else one if isinstance(one, np.ndarray) else None for one in key]
    arrays = [place for place, one in enumerate(key) if isinstance(one, Traced | np.ndarray)]
    if len(arrays) == 1:
        place = arrays[0]
        axis = sum(not isinstance(one, int | np.integer) for one in key[:place])
        if axis != place and any(isinstance(one, int | np.integer) for one in key[place + 1 :]):
            refused("indexing by an array between two numbers", "index in two steps")
        advanced = [at for at, one in enumerate(key) if not isinstance(one, slice)]
        if place and advanced[-1] - advanced[0] >= len(advanced):  # numpy would put the axes of the array first
            refused(
                "indexing by an array and a number with a slice between them",
                "index in two steps, then move the axes of the array to the front",
            )
        others = (*key[:place], slice(None), *key[place + 1 :])
        rest = a[others] if any(one != slice(None) for one in others) else a
        return _taken(rest, key[place] if held[place] is None else held[place], axis)
    if arrays == list(range(len(arrays))) and len(key) <= a.ndim:
        if any(isinstance(one, int | np.integer) for one in key):
            refused("indexing by several arrays and a number", "index in two steps")
        lines = [
            _within(one, extent)
            if values is None
            else Traced(placed(np.where(values < 0, values + extent, values), "float32", line), "i")
            for one, values, extent in zip(key, held, a.shape, strict=False)
        ]
        found: Any = lines[0]
        for place in arrays[1:]:
            found = found * a.shape[place] + lines[place]
        flat = a.reshape((math.prod(a.shape[: len(arrays)]), *a.shape[len(arrays) :]))
        first = _counts_rows(held[0], a.shape[0])
        if len(arrays) == 2 and first and a.ndim == 2 and isinstance(key[1], Traced) and key[1].ndim == 1:
            return _chosen(a, key[1].reshape((a.shape[0], 1)), 1).reshape(a.shape[0])
        rest = (slice(None),) * found.ndim + key[len(arrays) :]
        return _taken(flat, found, 0)[rest]
    raise NotLowered(
        "indexing by several arrays is lowered only on the first axes; move their axes to the front by np.moveaxis before",
        line,
    )


def _counts_rows(known: Any, rows: int) -> bool:
    """Return True if ``known`` holds the numbers 0 to ``rows`` - 1 in order, so that it selects each row once."""
    return known is not None and known.shape == (rows,) and bool((known == np.arange(rows)).all())


def _within(indices: Traced, extent: int) -> Any:
    """Return positions that count from the start of an axis: ``extent`` is added to negative ones."""
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
        pieces = runs(where)
        if len(pieces) <= MOST_RUNS:
            lead = (slice(None),) * axis
            parts = [a[(*lead, _run(*piece))] for piece in pieces]
            joined = parts[0] if len(parts) == 1 else np.concatenate(parts, axis)
            return joined.reshape((*a.shape[:axis], *np.shape(held), *a.shape[axis + 1 :]))
        try:
            indices = Traced(placed(where.reshape(np.shape(held)).astype(np.float64), "float32", line_now()), "i")
        except NotLowered:
            refused(
                f"indexing by {len(pieces)} runs of constant positions",
                f"a run has equal steps; use at most {MOST_RUNS}, or compute the positions by a few steps of np.arange",
            )
    indices = _within(wrapped(indices), a.shape[axis])
    table = Traced(array_of(a), a.kind).part(lambda array: np.moveaxis(array, axis, 0))
    found = Traced(whole(gathered(table.view, indices.view, line_now())), a.kind)
    if axis == 0:
        return found
    places = tuple(range(indices.ndim))
    return found.part(lambda array: np.moveaxis(array, places, tuple(axis + one for one in places)))


def _run(first: int, step: int, count: int) -> slice:
    """Return the slice that selects ``count`` positions, beginning with ``first``."""
    end = first + step * count
    return slice(first, end if end >= 0 else None, step)


@lowers("take_along_axis")
def _chosen(arr: Any, indices: Any, axis: Any = -1) -> Any:
    """Return the elements at the given positions along an axis.

    Each element is computed as a sum over the axis, after all other elements were replaced by zeros.
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
    wide = (*np.broadcast_shapes(arr.shape[:-1], numbers.shape[:-1]), numbers.shape[-1], arr.shape[-1])
    here = np.expand_dims(numbers, -1) == positions(wide, len(wide) - 1)
    return Traced(np.where(here, np.expand_dims(arr, -2), 0).sum(-1).view, arr.kind)


def _hits(a: Traced, key: tuple[Any, ...]) -> tuple[Traced, Traced]:
    """Return (positions [stores], hits [rows, stores]) of a store to rows of ``a`` that an array names.

    A hit is True where the store goes to the row. Raise NotLowered if the array names anything but whole rows.
    """
    if sum(isinstance(one, Traced | np.ndarray) for one in key) > 1:
        refused("a store to positions that several arrays name", "choose by np.where and a mask of positions")
    if len(key) > a.ndim or not isinstance(key[0], Traced) or any(one != slice(None) for one in key[1:]):
        refused(
            "a store to positions other than whole rows",
            "store whole rows, or choose by np.where and a mask of positions",
        )
    rows = _within(key[0], a.shape[0]).reshape((-1,))
    wide = (a.shape[0], rows.shape[0])
    return rows, np.equal(rows, positions(wide, 0))


def _one_each(a: Traced, key: tuple[Any, ...]) -> Traced | None:
    """Return the positions of one element in each row, as a column, if ``key`` is ``(np.arange(rows), positions)``.

    Return None for any other key.
    """
    if a.ndim != 2 or len(key) != 2 or not isinstance(key[1], Traced) or key[1].shape != (a.shape[0],):
        return None
    first = key[0].known() if isinstance(key[0], Traced) else np.asarray(key[0])
    column: Traced | None = _within(key[1], a.shape[1]).reshape((-1, 1)) if _counts_rows(first, a.shape[0]) else None
    return column


def _add_to_constant_rows(a: Traced, held: np.ndarray[Any, Any], b: Any) -> None:
    """Add values to the rows whose constant numbers are in ``held``: a sum of each run of values for one row."""
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


@lowers("__setitem__")
def _stored_rows(a: Traced, key: tuple[Any, ...], value: Any) -> None:
    """Store ``value`` to the rows that an array of positions names. Of several stores to a row the last one remains."""
    if (places := _one_each(a, key)) is not None:
        called("put_along_axis", a, places, np.reshape(value, (-1, 1)) if np.ndim(value) else value, 1)
        return
    rows, hits = _hits(a, key)
    last = np.where(hits, positions(hits.shape, 1), -1).max(axis=1)
    chosen: Any = value
    if np.ndim(value):
        spread = np.broadcast_to(value, (*key[0].shape, *a.shape[1:])).reshape((rows.shape[0], *a.shape[1:]))
        chosen = _taken(spread, Traced(np.maximum(last, 0).view, "i"), 0)
    a.assign(np.where((last >= 0).reshape((-1, *(1,) * (a.ndim - 1))), chosen, a))


@lowers("add.at")
def _added_rows(a: Any, indices: Any, b: Any) -> None:
    """Add values to the rows that an array of positions names, once for each time that the array names the row."""
    key = indices if isinstance(indices, tuple) else (indices,)
    if not isinstance(a, Traced):
        refused("np.add.at to a constant array", "make the array by np.zeros")
    if (places := _one_each(a, key)) is not None:
        a.assign(a + np.where(places == positions(a.shape, 1), np.reshape(b, (-1, 1)) if np.ndim(b) else b, 0))
        return
    held = key[0].known() if isinstance(key[0], Traced) else np.asarray(key[0])
    if held is not None and all(one == slice(None) for one in key[1:]):
        _add_to_constant_rows(a, np.where(held < 0, held + a.shape[0], held), b)
        return
    rows, hits = _hits(a, key)
    spread = np.broadcast_to(b, (*key[0].shape, *a.shape[1:])).reshape((rows.shape[0], -1))
    a.assign(a + (np.where(hits, 1.0, 0.0) @ spread).reshape(a.shape))
