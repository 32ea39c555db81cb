"""Describe which versions of the package ``nki`` accept a construct of a kernel, and what to write in the other
versions.
"""

from __future__ import annotations

from dataclasses import dataclass

RULE = "nki_version"
"""The rule id of the failure of a kernel with a construct that its version of ``nki`` lacks."""

BEFORE_ALL = "0.0"
"""A last version that is older than every version of ``nki``: a :class:`Lifetime` with this end says that no version
accepts the construct.
"""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The versions of ``nki`` that accept a construct: from ``since`` to ``until``, both included.

    An empty ``since`` means the first version, an empty ``until`` the latest. ``certain`` is False if only
    documentation names the versions, or if kernels that ran on a chip contradict the documentation. An uncertain
    refusal is only a notice.
    """

    since: str = ""
    until: str = ""
    instead: str = ""
    """The construct to write in versions that lack this one."""
    certain: bool = True

    def covers(self, version: str) -> bool:
        """Tell whether ``version`` accepts the construct."""
        return not self.comes_after(version) and not self.ended_before(version)

    def comes_after(self, version: str) -> bool:
        """Tell whether ``version`` is older than the first version that accepts the construct."""
        return bool(self.since) and _number(version) < _number(self.since)

    def ended_before(self, version: str) -> bool:
        """Tell whether ``version`` is newer than the last version that accepts the construct."""
        return bool(self.until) and _number(version) > _number(self.until)


@dataclass(frozen=True, slots=True)
class Need:
    """One construct, on one line of a kernel, that some versions of ``nki`` lack."""

    line: int
    what: str
    life: Lifetime

    def text(self, version: str) -> str:
        """Return a sentence for the user: ``version`` refuses the construct, and version X is the first or last one
        with it.
        """
        if self.life.ended_before(version):
            return f"{self.what}: NKI {version} refuses it, {self.life.until} is the last version with it"
        return f"{self.what}: NKI {version} refuses it, {self.life.since} is the first version with it"


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
