"""Define the statuses of an evaluation, and the failure of a kernel.

:mod:`acceld.model` exports both. The two have a module of their own because the sandbox's processes need nothing else
of :mod:`acceld.model`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """Result of an evaluation. A fault of acceld itself is an exception, never a status."""

    PASSED = "passed"
    """Correct, and has a latency."""
    UNSUPPORTED = "unsupported"
    """The simulator lacks a call that the kernel uses. That is no fault of the kernel, and teaches nothing."""
    COMPILE_ERROR = "compile_error"
    """The kernel can not be traced or compiled, or breaks a rule of the chip."""
    RUNTIME_ERROR = "runtime_error"
    """The kernel failed while it ran."""
    INCORRECT_SHAPE = "incorrect_shape"
    """An output is missing or has the wrong shape."""
    INCORRECT_DTYPE = "incorrect_dtype"
    """An output has the wrong dtype."""
    INCORRECT_NUMERICAL = "incorrect_numerical"
    """An output is beyond the tolerance."""
    REJECTED = "rejected"
    """The policy for candidates refuses the source."""
    SUSPECT = "suspect"
    """Faster than the physical floor, or failing an integrity check: a second method or a person decides."""
    TIMEOUT = "timeout"
    """A deadline of the evaluation passed."""
    UNTESTED = "untested"
    """Not run on data. Its simulated latency can neither enter the beam nor teach."""
    UNCHECKED = "unchecked"
    """Timed and not checked, because there is no reference."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Reason why a kernel did not pass, for a person or for a model that repairs the kernel."""

    rule: str
    """Stable class name, such as ``partition_limit`` or ``tolerance``."""
    message: str
    line: int = 0
    hint: str = ""
