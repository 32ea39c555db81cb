"""Looking up what an earlier daemon already wrote of an iteration that was cut off."""

from __future__ import annotations

from dataclasses import dataclass

from acceld.model import Attempt, Candidate, Plan
from acceld.store.reads.records import ResumeState


@dataclass(frozen=True, slots=True)
class OpenIteration:
    """Plans, attempts and candidates of the open iteration, by their place."""

    state: ResumeState

    def plan(self, iteration: int, parent: int, index: int) -> Plan | None:
        """The plan already written for this place."""
        for plan in self.state.plans:
            if (plan.iteration, plan.parent, plan.index) == (iteration, parent, index):
                return plan
        return None

    def attempt(self, plan: int, index: int, fix_of: int | None) -> Attempt | None:
        """The attempt already written for this place."""
        for attempt in self.state.attempts:
            if (attempt.plan, attempt.index, attempt.fix_of) == (plan, index, fix_of):
                return attempt
        return None

    def candidate(self, attempt: int) -> Candidate | None:
        """The candidate already written for an attempt."""
        for candidate in self.state.candidates:
            if candidate.attempt == attempt:
                return candidate
        return None
