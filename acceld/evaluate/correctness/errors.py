"""Define the errors of an output against its reference, which :mod:`acceld.evaluate.correctness.metrics`
computes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Errors:
    """The three errors of one output, or the worst errors of several outputs. An output that is not finite has
    infinite errors.
    """

    rel_l2: float
    worst_row: float
    element: float
    place: str = field(default="", compare=False, kw_only=True)
    """A description of where the output is wrong; empty if that was not examined."""

    def worst(self, other: Errors) -> Errors:
        """Return a record that has, for each error, the greater of the two records' values."""
        return Errors(
            max(self.rel_l2, other.rel_l2),
            max(self.worst_row, other.worst_row),
            max(self.element, other.element),
        )

    def times(self, factor: float) -> Errors:
        """Return a record with each error multiplied by ``factor``."""
        return Errors(factor * self.rel_l2, factor * self.worst_row, factor * self.element)

    @property
    def finite(self) -> bool:
        """Tell whether all errors are finite. They can be finite only if the output is finite."""
        return math.isfinite(self.rel_l2)

    def plain(self) -> list[float]:
        """Return the three errors as a list for JSON."""
        return [self.rel_l2, self.worst_row, self.element]


NONE = Errors(0.0, 0.0, 0.0)
BROKEN = Errors(math.inf, math.inf, math.inf)
