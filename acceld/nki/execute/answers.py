"""Store the answers of one run's comparisons, so that another run can reverse the answers that undefined memory
decides.

Undefined memory has other random contents in the second run. These are hardly ever equal to a whole number with which a
kernel compares them, so both runs would give the same answer. The second run therefore reverses the answer where the
operands differ between the runs. A right kernel gives the same results with either answer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from acceld.nki.ir.numerics import Array

_MOST_BYTES = 256 * 1024**2
_FACTORS = np.uint32(2_654_435_761), np.uint32(2_246_822_519)
"""Two odd numbers, one for each operand of a comparison. The operand's bits are multiplied by its number before the
products are summed, so that the sum changes if one operand changes.
"""


class Answers:
    """The answers of a run's comparisons, in the order in which the program makes them. For each compared element the
    answer is kept with a byte that depends on the two operands.

    Comparisons after the first :data:`_MOST_BYTES` elements are not kept.
    """

    def __init__(self) -> None:
        self._asked: list[tuple[Array, Array]] = []
        self._bytes = 0
        self._next: int | None = None

    def begin_again(self) -> None:
        """Begin another run: :meth:`settled` then reverses the answers of comparisons whose operands have changed, and
        stores no more answers.
        """
        self._next = 0

    def settled(self, a: Any, b: Any, answer: Array) -> Array:
        """Return the answer of a comparison. The first run stores the answer. A later run returns the opposite of the
        stored answer where the operands of the comparison have changed.
        """
        if self._next is None:
            self._keep(a, b, answer)
            return answer
        at, self._next = self._next, self._next + 1
        if at >= len(self._asked):
            return answer
        marks, before = self._asked[at]
        if marks.shape != np.broadcast_shapes(np.shape(a), np.shape(b)):
            return answer  # a loop with a run-time number of iterations made other comparisons than in the first run
        return np.where(marks != _marks(a, b), ~before, answer != 0).astype(answer.dtype)

    def _keep(self, a: Any, b: Any, answer: Array) -> None:
        if self._bytes < _MOST_BYTES:
            marks = _marks(a, b)
            self._bytes += 2 * marks.size
            self._asked.append((marks, answer != 0))


def _marks(a: Any, b: Any) -> Array:
    """Return one byte for each pair of compared elements. Two different pairs nearly always have different bytes."""
    bits = [_bits(one) * factor for one, factor in zip((a, b), _FACTORS, strict=True)]
    return (
        ((bits[0] + bits[1]) >> np.uint32(24)).astype(np.uint8).reshape(np.broadcast_shapes(np.shape(a), np.shape(b)))
    )


def _bits(operand: Any) -> Array:
    """Return the bits of an operand as uint32. An operand of another type than a 32-bit integer is converted to
    float32 first.
    """
    whole = np.asarray(operand).dtype in (np.int32, np.uint32)
    return np.ascontiguousarray(operand, None if whole else np.float32).view(np.uint32)
