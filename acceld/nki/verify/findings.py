"""Collect the findings of a verification."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from acceld.nki.errors import LegalityError, placed
from acceld.nki.ir.program import Access, Buffer, Instruction, Program

MAX_FINDINGS = 50


class TooMany(Exception):
    """Raised to end a verification that has MAX_FINDINGS findings, or that has passed its deadline. The findings so far
    are kept.
    """


@dataclass
class Report:
    """The findings of one verification. Each combination of rule, line and message occurs once.

    ``noted`` counts repeated findings too. ``noted`` grows whenever a check finds something, even if ``findings`` stays
    the same.
    """

    program: Program
    deadline: float
    """Processor time of the thread (``time.thread_time()``) at which the verification ends."""
    findings: dict[tuple[str, int, str], LegalityError] = field(default_factory=dict)
    noted: int = 0

    def add(self, rule: str, where: int | Instruction | Buffer, message: str, hint: str = "") -> None:
        """Add a finding at a line, an instruction or a buffer's declaration. Raise TooMany after MAX_FINDINGS
        findings.
        """
        self.noted += 1
        line, place = (where, "") if isinstance(where, int) else (where.line, where.place)
        message = placed(message, place)
        self.findings.setdefault((rule, line, message), LegalityError(message, rule=rule, line=line, hint=hint))
        if len(self.findings) >= MAX_FINDINGS:
            raise TooMany

    def tick(self) -> None:
        """Raise TooMany if the verification has passed its deadline, after adding a finding about the deadline. Long
        checks call this method regularly.
        """
        if time.thread_time() > self.deadline:
            self.add(
                "verify_deadline",
                0,
                "the program is too large to be verified within its deadline",
                "unroll fewer loops",
            )
            raise TooMany

    def buffer(self, access: Access) -> Buffer:
        """Return the buffer that an access reads or writes."""
        return self.program.buffers[access.buffer]

    def name(self, access: Access) -> str:
        """Return the name and shape of an access for messages, such as ``x[128, 512]``."""
        buffer = self.buffer(access)
        shape = ", ".join(str(n) for n in access.shape)
        return f"{buffer.name or f'buffer {buffer.id}'}[{shape}]"
