"""Measure how far an output is from its reference: overall, in the worst row, and element by element.

The three errors are ratios without unit, computed in float64, in blocks of rows so that outputs of a gigabyte
fit. With r the reference, e the error, rows along the last axis, and R the root mean square of the rows' norms:

* ``rel_l2``     = |e| / |r|, the paper's error
* ``worst_row``  = max over rows of |e_row| / max(|r_row|, 1e-4 R)
* ``element``    = max over elements of |e_i| / (|r_i| + 1e-3 rms(r_row) + 1e-7 R / sqrt(row length))

The added terms in the denominators limit the weight of elements and rows that cancel to almost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acceld.cores import on_several_cores
from acceld.evaluate.correctness.bands import Piece
from acceld.evaluate.correctness.errors import BROKEN, NONE, Errors

_BLOCK_ELEMENTS = 1 << 16
"""Elements that are compared at once: half a megabyte of float64, which fits into a core's own cache."""
_SHARE_ELEMENTS = 1 << 24
"""Number of elements from which on a comparison is divided among the cores."""
_ROW_DAMPING = 1e-4
_ELEMENT_DAMPING = 1e-3
_GLOBAL_DAMPING = 1e-7
_LEAST_DAMPING = 1e-300
"""Divisor for the errors of rows that are zero, if R is zero too."""


def compare_pieces(
    actual: Sequence[NDArray[Any]],
    expected: Sequence[NDArray[Any]],
    pieces: Iterable[Piece],
    squares: Sequence[float] | None = None,
) -> list[Errors]:
    """Return the errors of each piece, which is a whole output or a band of an output. An output may have another shape
    than its reference.

    ``squares`` has the sum of squares of each expected output, if each is a single piece; None to compute the sums.
    """
    errors = []
    for piece in pieces:
        want = expected[piece.output]
        got, want = piece.of(actual[piece.output].reshape(want.shape)), piece.of(want)
        if piece.band == "nan":
            errors.append(_compare_nan(got, want))
        else:
            errors.append(compare(got, want, squares[piece.output] if squares else None))
    return errors


def _compare_nan(actual: NDArray[Any], expected: NDArray[Any]) -> Errors:
    """Return the errors of the elements whose reference is a number.

    Return ``BROKEN`` if an element is NaN in the output but not in the reference, or in the reference but not in the
    output.
    """
    absent = np.isnan(expected)
    if not (np.isnan(actual.astype(np.float64)) == absent).all():
        return BROKEN
    return compare(np.where(absent, 0, actual), np.where(absent, 0, expected))


def compare(actual: NDArray[Any], expected: NDArray[Any], total: float | None = None) -> Errors:
    """Return the errors of ``actual`` (any real dtype) against ``expected`` (float64), arrays of the same shape.

    ``total`` is the sum of squares of ``expected``; None if the sum has to be computed. Return ``BROKEN`` if an
    element is finite in only one of the arrays, or if the reference is zero everywhere and ``actual`` is not.
    """
    if actual.shape != expected.shape:
        raise ValueError(f"the output has shape {actual.shape}, its reference {expected.shape}")
    if expected.size == 0:
        return NONE
    width = expected.shape[-1] if expected.ndim else 1
    got, want = actual.reshape(-1, width), expected.reshape(-1, width)
    total = sum_of_squares(want) if total is None else total
    if not math.isfinite(total):
        return BROKEN
    comparison = Comparison(len(want), want.size, total)
    step = max(1, _SHARE_ELEMENTS // width)
    on_several_cores(
        lambda first: comparison.add(first, got[first : first + step], want[first : first + step]),
        range(0, len(want), step),
    )
    return comparison.errors()


def rows_of(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array as a matrix whose rows run along its last axis."""
    return array.reshape(-1, array.shape[-1] if array.ndim else 1)


def sum_of_squares(rows: NDArray[Any]) -> float:
    """Return the sum of squares of a matrix, in float64."""
    total = 0.0
    for block in _blocks(*rows.shape):
        part = rows[block].astype(np.float64, copy=False)
        total += float(np.einsum("ij,ij->i", part, part).sum())
    return total


def _blocks(rows: int, width: int) -> Iterator[slice]:
    """Return the slices that divide the rows of a matrix into blocks of limited size."""
    step = max(1, _BLOCK_ELEMENTS // width)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


class Comparison:
    """Compare an output of ``rows`` rows and ``elements`` elements with its reference in parts, in any order.

    ``total`` is the sum of squares of the reference. A sum in float32 suffices, because only a small term of the error
    ``element`` depends on it. Several threads may add parts at the same time.
    """

    def __init__(self, rows: int, elements: int, total: float) -> None:
        self._damping = max(_GLOBAL_DAMPING * math.sqrt(total / elements), _LEAST_DAMPING)
        self._row_squares, self._error_squares = np.zeros(rows), np.zeros(rows)
        self._elements = [0.0]

    def add(self, first: int, got: NDArray[Any], want: NDArray[Any]) -> None:
        """Compare a block of rows, the matrices ``got`` and ``want``. Their first row is row ``first`` of the
        output.
        """
        width = want.shape[1]
        for block in _blocks(*want.shape):
            rows = slice(first + block.start, first + block.stop)
            reference = want[block].astype(np.float64, copy=False)
            row_squares = np.einsum("ij,ij->i", reference, reference, out=self._row_squares[rows])
            error = got[block].astype(np.float64)
            error -= reference
            np.einsum("ij,ij->i", error, error, out=self._error_squares[rows])
            scale = np.abs(reference)
            scale += _ELEMENT_DAMPING * np.sqrt(row_squares / width)[:, None] + self._damping
            np.divide(np.abs(error, out=error), scale, out=error)
            self._elements.append(float(error.max()))

    @property
    def greatest_element(self) -> float:
        """Return the greatest error of an element so far; NaN if an element was not a number."""
        return float(np.max(self._elements))

    def errors(self) -> Errors:
        """Return the errors over all parts that were added."""
        total, error_total = float(self._row_squares.sum()), float(self._error_squares.sum())
        if not (math.isfinite(total) and math.isfinite(error_total)):
            return BROKEN
        if total == 0.0:
            return NONE if error_total == 0.0 else BROKEN
        typical = math.sqrt(total / len(self._row_squares))
        rows = np.sqrt(self._error_squares) / np.maximum(np.sqrt(self._row_squares), _ROW_DAMPING * typical)
        return Errors(math.sqrt(error_total / total), float(rows.max()), max(self._elements))


_WRONG = 1e-2
"""Relative error from which on an element is wrong and not only inexact."""
_ROUNDED = 5e-2
"""Greatest relative error of a row that rounding to fewer bits can cause."""
_SYSTEMATIC = 0.2
"""Cosine between errors and expected values from which on the errors count as systematic, which means that they follow
the values.

Errors of rounding have any sign, so their cosine is near zero. A wrong constant makes every value too large or too
small: a wrong epsilon in a normalization with a bias, then a product, gives 0.7.
"""


def place_of(actual: NDArray[Any], expected: NDArray[Any]) -> str:
    """Return a text on the largest difference: its position, both values and the likely cause; empty if nothing
    differs.
    """
    if expected.size == 0:
        return ""
    width = expected.shape[-1] if expected.ndim else 1
    got, want = actual.reshape(-1, width), expected.reshape(-1, width)
    step = max(1, _BLOCK_ELEMENTS // width)
    row_errors, along = np.zeros(len(want)), np.zeros(len(want))
    rows, columns, unwritten = np.zeros(len(want), bool), np.zeros(width, bool), np.ones(width, bool)
    wrong, broken, worst, at = 0, 0, -1.0, 0
    for start in range(0, len(want), step):
        reference = want[start : start + step].astype(np.float64, copy=False)
        found = got[start : start + step].astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(found - reference)
        bad = ~np.isfinite(error)
        broken += int(bad.sum())
        unwritten &= (np.isnan(found) & ~np.isnan(reference)).all(axis=0)
        error[bad] = math.inf
        place = int(error.argmax())
        if error.flat[place] > worst:
            worst, at = float(error.flat[place]), start * width + place
        scale = np.abs(reference) + _WRONG * np.sqrt(np.einsum("ij,ij->i", reference, reference) / width)[:, None]
        off = error > _WRONG * scale
        wrong += int(off.sum())
        rows[start : start + step], columns = off.any(axis=1), columns | off.any(axis=0)
        norms = np.sqrt(np.einsum("ij,ij->i", reference, reference))
        with np.errstate(invalid="ignore", over="ignore"):
            sums = np.sqrt(np.einsum("ij,ij->i", error, error))
            np.divide(
                np.einsum("ij,ij->i", found - reference, reference),
                sums * norms,
                out=along[start : start + step],
                where=sums * norms > 0,
            )
        np.divide(sums, norms, out=row_errors[start : start + step], where=norms > 0)
    if worst <= 0.0:
        return ""
    index = [int(one) for one in np.unravel_index(at, expected.shape)] if expected.ndim else []
    said = f"worst at {index}: expected {float(want.flat[at]):.6g}, found {float(got.flat[at]):.6g}"
    if wrong:
        said += f"; {wrong} of {expected.size} elements have an error of more than 1 %, in {_span('row', rows)}"
        said += f" and {_span('column', columns)} of {len(want)} rows of {width} columns"
    if broken:
        empty = _never_written(unwritten)
        return f"{empty}{said}; {broken} are not finite"
    everywhere = float(np.median(row_errors)) > 0.2 * float(row_errors.max())
    if everywhere and abs(float(along.mean())) > _SYSTEMATIC:
        much = "large" if along.mean() > 0 else "small"
        return f"{said}; values are too {much} in every row: a constant may be wrong, such as an epsilon, a scale or a count"
    if everywhere and row_errors.max() < _ROUNDED:
        return f"{said}; every row has about the same error, so low precision is the likely cause"
    return f"{said}; rounding can not explain this"


def _never_written(columns: NDArray[np.bool_]) -> str:
    """Return a text that names the marked columns, in which every row still holds the NaN of memory that was never
    written.

    Return an empty text unless the marked columns are what a loop over whole tiles leaves out: all columns behind the
    last whole tile. The width of a tile is taken as the greatest power of two that divides the number of columns
    before the marked ones.
    """
    found, width = np.flatnonzero(columns), len(columns)
    if not found.size or found[-1] != width - 1 or len(found) != width - found[0] or not found[0]:
        return ""
    first = int(found[0])
    tile = first & -first
    why = f": {width} is no multiple of {tile}" if width - first < tile else ""
    return f"columns {first} to {width - 1} are never written{why}; "


def _span(name: str, marks: NDArray[np.bool_]) -> str:
    """Return the marked indices as text, such as ``rows 3 to 17 (5 of them)`` or ``every row``."""
    found = np.flatnonzero(marks)
    first, last = int(found[0]), int(found[-1])
    if len(found) == len(marks):
        return f"every {name}"
    share = "" if len(found) == last - first + 1 else f" ({len(found)} of them)"
    return f"{name} {first}" if first == last else f"{name}s {first} to {last}{share}"
