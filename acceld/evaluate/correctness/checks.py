"""Complete the results of checks: hints for each variant, finite errors for records, the record of all checks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from acceld.evaluate.correctness.distributions import OWN
from acceld.evaluate.correctness.errors import Errors
from acceld.model import Check, Correctness, Failure, Gate

WORST = 1e9
"""Number that replaces an infinite error in records, because records hold finite numbers only."""
_HEAVY_TAIL = 64
"""If the error of a failed check is at most this many times the tolerance, the noise is measured again on the check's
own data set.

One data set may be far noisier than the next, for example if two nearly equal logits decide a softmax. Products of
bfloat16 parts are up to 64 times as inexact as float32.
"""

NOT_FINITE = (
    "Write every element of the output: a loop over SIZE // TILE tiles leaves out the rest. If every element is written, look "
    "for a division by zero, and for exp or log of too large or too small a value."
)
HINTS = {
    "own": "Compare the kernel's formula with the reference, term by term.",
    "scaled_up": "On inputs 30 times as large: subtract the maximum before exp, and do not approximate functions.",
    "scaled_down": "On inputs a thousandth as large: epsilons and small terms matter there.",
    "shifted": "On inputs plus 3: a mean must be subtracted before it is squared.",
    "integers": "On small whole numbers: every product and sum is exact there, so a term is missing or rounded.",
    "row_scaled": "Rows of very different size: each row needs its own maximum and its own sum.",
    "sparse": "Nine of ten inputs are zero: epsilons and masks matter there.",
    "special": "Signed zeros, tiny and large values among the inputs.",
}


def near(check: Check) -> bool:
    """Tell whether a failed check is so near its tolerance that it may pass once the noise floor is measured on the
    check's own inputs.
    """
    if check.passed or check.rel_l2 is None or not check.tolerance:
        return False
    return check.rel_l2 < _HEAVY_TAIL * check.tolerance


def bounded(check: Check) -> Check:
    """Return the check with its error limited to :data:`WORST`, so that records hold no infinity."""
    if check.rel_l2 is None or check.rel_l2 < WORST:
        return check
    return replace(check, rel_l2=WORST)


def worst_row(errors: Errors) -> float:
    """Return the error of the worst row, limited to :data:`WORST`, so that records hold no infinity."""
    return min(errors.worst_row, WORST)


def correctness_of(
    gate: Gate, checks: Sequence[Check], worst_row: float, accelopt_passed: bool | None = None
) -> Correctness:
    """Return the record of the checks at a gate. The record has error and tolerance of the check whose error is the
    greatest share of its tolerance.
    """
    closest = max((check for check in checks if check.rel_l2 is not None), key=_tightness, default=None)
    return Correctness(
        gate=gate,
        rel_l2=closest.rel_l2 if closest and closest.rel_l2 is not None else 0.0,
        tolerance=closest.tolerance if closest and closest.tolerance is not None else 0.0,
        worst_row=worst_row,
        checks=tuple(checks),
        accelopt_passed=accelopt_passed,
    )


def _tightness(check: Check) -> float:
    """Return the error of a check divided by its tolerance: above 1 if the check fails."""
    assert check.rel_l2 is not None
    return check.rel_l2 / check.tolerance if check.tolerance else check.rel_l2


def at_hidden(check: Check, where: str) -> Check:
    """Return a check of a hidden shape, with the shape in its name. ``where`` has the values of the shape."""
    variant = "" if check.name == OWN else f"/{check.name}"
    return replace(check, name=f"hidden shape {where}{variant}")


_NOT_TRIED = re.compile(r"(\w+) \(not tried: (.*)\)")
"""Matches the name of a check by :func:`not_tried`. The groups are the data set's name and the reason."""


def not_tried(name: str, reason: str) -> Check:
    """Return a passed check that says why the data set ``name`` was not tried."""
    return Check(f"{name} (not tried: {reason})", True)


def reason_not_tried(check: Check) -> tuple[str, str] | None:
    """Return the data set's name and the reason in a check that :func:`not_tried` made; None for any other check."""
    found = _NOT_TRIED.fullmatch(check.name)
    return None if found is None else (found[1], found[2])


def placed(failure: Failure, where: str) -> Failure:
    """Return the failure with ``where``, such as ``the hidden shape M=384``, before its message.

    A failure without a hint gets a hint about shapes.
    """
    hint = failure.hint or "Take sizes from the arguments' shapes: the kernel must be right at other shapes too."
    return replace(failure, message=f"at {where}: {failure.message}", hint=hint)
