"""Derive the greatest errors that pass: a multiple of float32's noise, but at most the paper's tolerance.

The *floor* of an output is measured once for each input distribution. It is the greater of two errors against
float64: that of numpy in float32, and that of the workload's own baseline on the same backend. Then::

    relative L2  min(clamp(20 x floor, 2e-7, 1e-3), the paper's), but at least 2 x floor
    worst row    clamp(20 x floor, 1e-6, 1e-2), but at least 2 x floor
    element      max(50 x floor, 1e-3)

If a workload allows it, a product may be made of three products of bfloat16 parts. Each such product has an
error of 4.5e-6, however many are summed. That may exceed 20 x floor if few terms are summed. So such workloads
get at least 1e-5 (5e-5 for a row, 600 x floor for an element). Whole numbers split without error, so inputs of
whole numbers get no more.

A workload may amplify an error of its inputs. To measure that, the inputs are changed at random by as much as
rounding changes them: to a neighbor in float32, or to the sum of two bfloat16 parts. Products of bfloat16 parts
have 1.0 to 2.6 times the error that the change to bfloat16 parts causes (measured on softmax, attention, gated
products, norms). A candidate may have four times that error. If a candidate narrowly fails, the change is
measured several times on its very inputs.

A fixed tolerance of 2e-5 would be 2 to 558 times the floor of the public workloads: wide enough to leave out
whole terms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from acceld.evaluate.correctness.errors import Errors

_MULTIPLE = 20.0
_LEAST_MULTIPLE = 2.0
_LEAST, _GREATEST = 2e-7, 1e-3
_LEAST_ROW, _GREATEST_ROW = 1e-6, 1e-2
SPLIT, SPLIT_ROW = 1e-5, 5e-5
"""Twice the error of a product of bfloat16 parts: over all elements, and for one row."""
_ELEMENT_MULTIPLE, _SPLIT_MULTIPLE, _LEAST_ELEMENT = 50.0, 600.0, 1e-3


_EDGE, _EDGE_ROW, _EDGE_ELEMENT = 1e-4, 1e-2, 1e-1
"""Least tolerances in bands of hard inputs.

For example, a logit of 1000 is rounded by 6e-5 if a kernel stores it, and not at all if the kernel first subtracts the
greatest logit. The errors that a band is meant to find are larger: values that overflow, are cut off or are left out.
"""

_MIXED_ELEMENT = 4e-3
"""Least tolerance of an element if its row mixes magnitudes.

A normalization that first subtracts one element of its row rounds all others as much as that element. If that element
is 80 and the others are about 1, a result near zero is wrong by up to 2.7e-3 (measured for rows of 128 to 8192
elements).
"""

_REPEATED, _REPEATED_ROW = 4e-5, 1e-4
"""Least tolerances if most elements of the inputs have one of a few values.

Errors of equal terms that are added one after another do not cancel: they grow with the number of terms. A softmax
whose sums come from a scan errs by 8e-6 on sparse rows of 512 elements (2.4e-5 in the worst row), and by four times as
much on rows of 2048. numpy adds in pairs and errs by 4e-7.
"""

_PARTS = 4.0
"""Factor by which the error of matrix products of bfloat16 parts may exceed the error that rounding the inputs to two
bfloat16 parts causes.
"""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The greatest errors with which an output passes."""

    rel_l2: float
    worst_row: float
    element: float

    def admits(self, errors: Errors) -> bool:
        """Tell whether all three errors are within the tolerance."""
        return errors.rel_l2 <= self.rel_l2 and errors.worst_row <= self.worst_row and errors.element <= self.element

    def complaint(self, errors: Errors) -> str:
        """Return a text on the first error that is too large; empty if all are within the tolerance."""
        for what, error, limit in (
            ("relative L2 error", errors.rel_l2, self.rel_l2),
            ("worst row's relative L2 error", errors.worst_row, self.worst_row),
            ("worst element's relative error", errors.element, self.element),
        ):
            if not math.isfinite(error):
                return f"{what} is not finite"
            if not error <= limit:
                return f"{what} {error:.3g} exceeds {limit:.3g}"
        return ""


def floor_of_parts(rounded: Errors) -> Errors:
    """Return the noise floor for a workload that allows matrix products of bfloat16 parts; the tolerance is a multiple
    of the floor.

    ``rounded`` has the errors of outputs whose inputs were rounded to such parts.
    """
    share = _PARTS / _MULTIPLE
    return Errors(share * rounded.rel_l2, share * rounded.worst_row, _PARTS / _SPLIT_MULTIPLE * rounded.element)


def tolerance_from(
    floor: Errors,
    published: float,
    *,
    split: bool = False,
    edge: bool = False,
    mixed: bool = False,
    repeated: bool = False,
) -> Tolerance:
    """Return the tolerance of an output from its noise floor and the workload's published tolerance.

    - ``split``: products may be made of bfloat16 parts on these inputs.
    - ``edge``: the inputs are at the limits of float32, where honest kernels differ in what they round.
    - ``mixed``: a row of the inputs has values of very different magnitudes.
    - ``repeated``: most elements of the inputs have one of a few values. Sums of equal terms round worse, so
      the tolerance grows. If numpy makes no error on these inputs, the results are exact and the tolerance does
      not grow.
    """
    least_element = _EDGE_ELEMENT if edge else _MIXED_ELEMENT if mixed else _LEAST_ELEMENT
    strict = min(max(_MULTIPLE * floor.rel_l2, _LEAST), _GREATEST)
    row = min(max(_MULTIPLE * floor.worst_row, _LEAST_ROW), _GREATEST_ROW)
    if split:
        strict, row = max(strict, SPLIT), max(row, SPLIT_ROW)
    if edge:
        strict, row = max(strict, _EDGE), max(row, _EDGE_ROW)
    strict = min(strict, published)
    if repeated and floor.rel_l2 > 0:
        strict, row = max(strict, _REPEATED), max(row, _REPEATED_ROW)
    return Tolerance(
        rel_l2=max(strict, _LEAST_MULTIPLE * floor.rel_l2),
        worst_row=max(row, _LEAST_MULTIPLE * floor.worst_row),
        element=max((_SPLIT_MULTIPLE if split else _ELEMENT_MULTIPLE) * floor.element, least_element),
    )


def allowed_because(limit: float, published: float, *, split: bool) -> str:
    """Return a sentence on why an output may have a relative L2 error of ``limit``, where ``published`` is the paper's
    tolerance.
    """
    if _about(limit, published):
        return f"the workload's {published:g}, the most on any data"
    if split and _about(limit, SPLIT):
        return f"twice the error of a product of bfloat16 parts, which this precision allows; at most the workload's {published:g}"
    if _about(limit, _LEAST):
        return "the least that is ever allowed: float32 arithmetic makes hardly any error on these data"
    if limit > published:
        return (
            f"more than the workload's {published:g}: float32 arithmetic itself errs by half of this on these data, or they are "
            "at the limits of float32"
        )
    return f"20 times the error of float32 arithmetic measured on these data; at most the workload's {published:g}"


def _about(one: float, other: float) -> bool:
    """Tell whether two numbers are equal up to rounding."""
    return abs(one - other) <= 1e-6 * abs(other)
