"""Errors of a kernel or a program.

::

    KernelFailure            a kernel that can not be traced, verified or run
     ├─ UnsupportedCall      our simulator lacks it; the kernel is not to blame
     ├─ LegalityError        a rule of the API, SDK or chip is broken
     ├─ KernelCrash          the kernel's own Python, or running the program, raised
     └─ LimitExceeded        time, memory or instruction limit
    ProgramError             bytes that are no program (forged, truncated, beyond the limits)
    MissingRule              an operation without a rule (a defect of the simulator)
"""

from __future__ import annotations

from acceld.errors import AcceldError


class KernelFailure(AcceldError):
    """A kernel that can not be traced, verified or run.

    ``rule`` is a stable class name such as ``partition_limit``; ``line`` the kernel's 1-based line, 0 if unknown;
    ``hint`` advises a change.
    """

    exit_code = 7

    def __init__(self, message: str, *, rule: str, line: int = 0, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.rule = rule
        self.line = line


def placed(message: str, place: str) -> str:
    """Return a message with its place if that is in a helper's file; unchanged if it is in the kernel's own file."""
    return message if not place or message.endswith(f"({place})") else f"{message} ({place})"


class UnsupportedCall(KernelFailure):
    """The simulator does not support a call, or one of its options."""

    def __init__(self, message: str, *, line: int = 0, hint: str = "") -> None:
        super().__init__(message, rule="unsupported", line=line, hint=hint)


class LegalityError(KernelFailure):
    """A rule of the API, the SDK or the chip is broken."""


class KernelCrash(KernelFailure):
    """The kernel's Python raised while tracing, or the program failed while running."""


class LimitExceeded(KernelFailure):
    """A limit on time, memory or instructions was reached."""


class ProgramError(AcceldError):
    """The bytes are not an encoded program within the limits."""

    exit_code = 7


class MissingRule(AcceldError):
    """An operation has no execution or cost rule: a defect of the simulator, not of the kernel."""
