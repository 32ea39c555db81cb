"""What the loop asks of the optimization memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from acceld.model import Candidate, Insight


class Teacher(Protocol):
    """Chooses what the planner is shown and distils new insights from rewrites."""

    async def shown(self, iteration: int, parents: Sequence[Candidate] = ()) -> tuple[Insight, ...]:
        """The insights for this iteration's planners, who plan for ``parents``."""
        ...

    def notes(self) -> tuple[str, ...]:
        """What the planner should know about the search, such as plans that repeat."""
        ...

    async def learn(
        self,
        iteration: int,
        candidates: Sequence[Candidate],
        certify: Callable[[Candidate], Awaitable[Candidate]],
    ) -> None:
        """Select rewrites among ``candidates`` (parents and children), pass both ends through ``certify`` (the
        strict gate), and store what the summarizer makes of those that pass."""
        ...
