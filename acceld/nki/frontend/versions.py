"""Say in which versions of the package ``nki`` a kernel's construct exists, and what to write instead."""

from __future__ import annotations

from dataclasses import dataclass

RULE = "nki_version"
"""The rule id of a failure for a construct that the version does not have."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The versions that have a construct: from ``since`` to ``until``, both included; empty for no end.

    ``certain`` is False if only documentation says so, or if kernels that ran on a chip contradict: then it is a note.
    """

    since: str = ""
    until: str = ""
    instead: str = ""
    """The remedy where the construct does not exist."""
    certain: bool = True

    def covers(self, version: str) -> bool:
        """Return True if ``version`` has the construct."""
        return not self.comes_after(version) and not self.ended_before(version)

    def comes_after(self, version: str) -> bool:
        """Return True if the construct exists from a later version on."""
        return bool(self.since) and _number(version) < _number(self.since)

    def ended_before(self, version: str) -> bool:
        """Return True if an earlier version was the last with the construct."""
        return bool(self.until) and _number(version) > _number(self.until)


@dataclass(frozen=True, slots=True)
class Need:
    """A construct on a line of a kernel that not every version has."""

    line: int
    what: str
    life: Lifetime

    def text(self, version: str) -> str:
        """Return the sentence for a version that lacks the construct."""
        if self.life.ended_before(version):
            return f"{self.what}: NKI {version} refuses it, {self.life.until} is the last version with it"
        return f"{self.what}: NKI {version} refuses it, {self.life.since} is the first version with it"


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
