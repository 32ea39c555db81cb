"""Define the errors of a kernel or a program.

::

    KernelFailure            a kernel can not be traced, verified or run
     ├─ UnsupportedCall      the simulator lacks a call; the kernel is not to blame
     ├─ LegalityError        a rule of the API, SDK or chip is broken
     ├─ KernelCrash          the kernel's own Python raised, or running the program failed
     └─ LimitExceeded        a limit on time, memory or instructions was reached
    ProgramError             bytes that encode no program (forged, truncated, beyond the limits)
    MissingRule              an operation without a rule (a defect of the simulator)
"""

from __future__ import annotations

from acceld.errors import AcceldError

OF_SIMULATOR = "\x1a"
"""The first character of the text of a tile, a register or a loop's index in a guarded trace. Such a text is the
simulator's own: a chip's compiler gives another one. The mark is one character, because a format such as ``%.1s`` cuts the
end of a text. Messages for people leave the mark out.
"""


class KernelFailure(AcceldError):
    """Raised for a kernel that can not be traced, verified or run.

    ``rule`` is a stable name of the kind of failure, such as ``partition_limit``. ``line`` is the kernel's line
    (1-based), 0 if it is not known. ``hint`` says what to change.
    """

    exit_code = 7

    def __init__(self, message: str, *, rule: str, line: int = 0, hint: str = "") -> None:
        super().__init__(message.replace(OF_SIMULATOR, ""), hint=hint)
        self.rule = rule
        self.line = line


def placed(message: str, place: str) -> str:
    """Return an error message with ``place``, a position in another file than the kernel's own, behind it.

    Return the message unchanged if ``place`` is empty or if the message already ends with ``place``.
    """
    return message if not place or message.endswith(f"({place})") else f"{message} ({place})"


class UnsupportedCall(KernelFailure):
    """Raised for a call, or an option of a call, that the simulator does not support."""

    def __init__(self, message: str, *, line: int = 0, hint: str = "") -> None:
        super().__init__(message, rule="unsupported", line=line, hint=hint)


class LegalityError(KernelFailure):
    """Raised for a kernel that breaks a rule of the API, the SDK or the chip.

    The verifier returns these errors in place of raising them.
    """


class KernelCrash(KernelFailure):
    """Raised if the kernel's Python fails while it is traced, or if the program fails while it runs."""


class LimitExceeded(KernelFailure):
    """Raised if a limit on time, memory or the number of instructions is reached."""


class ProgramError(AcceldError):
    """Raised for bytes that are not an encoded program within the limits."""

    exit_code = 7


class MissingRule(AcceldError):
    """Raised for an operation without an execution or cost rule, which is a defect of the simulator and not of the
    kernel.
    """
