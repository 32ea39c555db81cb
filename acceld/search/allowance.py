"""How many candidates each place of an iteration may make, where a run has a number of them to spend. Pure.

What a place may do is fixed before the iteration begins, so it does not depend on what finishes first, and a run never
makes more candidates than it was given.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Allowance:
    """The candidates of one iteration: ``room`` of them for ``places``, each with at most ``repairs`` more."""

    room: int | None
    """None: as many as there are."""
    places: int
    repairs: int

    def of(self, place: int) -> int:
        """Candidates that a place (counted over parents, plans and attempts) may make, repairs included."""
        if self.room is None:
            return 1 + self.repairs
        if place >= self.room:
            return 0
        share, rest = divmod(max(0, self.room - self.places), min(self.places, self.room))
        return 1 + min(self.repairs, share + (place < rest))
