"""How far an output is from its reference: over all, in the worst row, element by element.

All three are ratios without unit, computed in float64, in blocks of rows so that outputs of a gigabyte fit.
With r the reference, e the error, rows the last axis, and R the root mean square of the rows' norms:

* ``rel_l2``     = |e| / |r|                                         (the paper's)
* ``worst_row``  = max over rows of |e_row| / max(|r_row|, 1e-4 R)
* ``element``    = max over elements of |e_i| / (|r_i| + 1e-3 rms(r_row) + 1e-7 R/sqrt(row length))

The damping terms keep an element or row that cancels to almost nothing from deciding alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BLOCK_ELEMENTS = 1 << 21
_ROW_DAMPING = 1e-4
_ELEMENT_DAMPING = 1e-3
_GLOBAL_DAMPING = 1e-7


@dataclass(frozen=True, slots=True)
class Errors:
    """The three errors of one output, or the worst of several; infinite where an output is not finite."""

    rel_l2: float
    worst_row: float
    element: float

    def worst(self, other: Errors) -> Errors:
        """The greater of each."""
        return Errors(
            max(self.rel_l2, other.rel_l2),
            max(self.worst_row, other.worst_row),
            max(self.element, other.element),
        )

    @property
    def finite(self) -> bool:
        """Whether there is a number at all."""
        return math.isfinite(self.rel_l2)

    def plain(self) -> list[float]:
        """As JSON-able data."""
        return [self.rel_l2, self.worst_row, self.element]


NONE = Errors(0.0, 0.0, 0.0)
BROKEN = Errors(math.inf, math.inf, math.inf)


def compare(actual: NDArray[Any], expected: NDArray[Any]) -> Errors:
    """The errors of ``actual`` (any real dtype) against ``expected`` (float64), arrays of one shape.

    An output that is not finite where the reference is, or the other way round, is ``BROKEN``; so is any
    difference from a reference that is zero everywhere.
    """
    if actual.shape != expected.shape:
        raise ValueError(f"shapes {actual.shape} and {expected.shape} differ")
    if expected.size == 0:
        return NONE
    width = expected.shape[-1] if expected.ndim else 1
    got, want = actual.reshape(-1, width), expected.reshape(-1, width)
    step = max(1, _BLOCK_ELEMENTS // width)
    blocks = [slice(start, start + step) for start in range(0, len(want), step)]
    total = float(sum(np.square(want[block], dtype=np.float64).sum() for block in blocks))
    if not math.isfinite(total):
        return BROKEN
    typical = math.sqrt(total / len(want))
    error_total, worst_row, element = 0.0, 0.0, 0.0
    for block in blocks:
        reference = want[block].astype(np.float64, copy=False)
        error = np.abs(got[block].astype(np.float64) - reference)
        if not np.isfinite(error).all():
            return BROKEN
        error_squares = np.square(error).sum(axis=1)
        row_squares = np.square(reference).sum(axis=1)
        error_total += float(error_squares.sum())
        if typical == 0.0:
            continue
        rows = np.sqrt(error_squares) / np.maximum(np.sqrt(row_squares), _ROW_DAMPING * typical)
        worst_row = max(worst_row, float(rows.max()))
        rms = np.sqrt(row_squares / width)[:, None]
        floor = _ELEMENT_DAMPING * rms + _GLOBAL_DAMPING * typical / math.sqrt(width)
        element = max(element, float((error / (np.abs(reference) + floor)).max()))
    if typical == 0.0:
        return NONE if error_total == 0.0 else BROKEN
    return Errors(math.sqrt(error_total / total), worst_row, element)
