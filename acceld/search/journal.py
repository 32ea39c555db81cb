"""What the search asks of the store, and what it finds there after a restart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from acceld.evaluate.base import EvaluationRequest
from acceld.model import Attempt, Candidate, Evaluation, Insight, Plan, RunState


@dataclass(frozen=True, slots=True)
class Resumed:
    """The rows of a run that was cut off; all empty for a new one."""

    baseline: Candidate | None = None
    best: Candidate | None = None
    beam: tuple[Candidate, ...] = ()
    """The beam after ``finished_iterations``."""
    finished_iterations: int = 0
    earlier_plans: tuple[Plan, ...] = ()
    """Plans of the finished iterations."""
    plans: tuple[Plan, ...] = ()
    """Plans of the open iteration."""
    attempts: tuple[Attempt, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    """Candidates of the open iteration, with their evaluations where they have one."""

    def plan(self, iteration: int, parent: int, index: int) -> Plan | None:
        """The plan already written for this place."""
        for plan in self.plans:
            if (plan.iteration, plan.parent, plan.index) == (iteration, parent, index):
                return plan
        return None

    def attempt(self, plan: int, index: int, fix_of: int | None) -> Attempt | None:
        """The attempt already written for this place."""
        for attempt in self.attempts:
            if (attempt.plan, attempt.index, attempt.fix_of) == (plan, index, fix_of):
                return attempt
        return None

    def candidate(self, attempt: int) -> Candidate | None:
        """The candidate already written for an attempt."""
        for candidate in self.candidates:
            if candidate.attempt == attempt:
                return candidate
        return None


class RunStore(Protocol):
    """The store as the search sees it: each call is one committed transaction with its event."""

    async def set_run_state(self, run: int, state: RunState, message: str = "") -> None:
        """Record where the run stands."""
        ...

    async def resume_state(self, run: int) -> Resumed:
        """Everything needed to go on."""
        ...

    async def start_iteration(self, run: int, iteration: int, parents: Sequence[int]) -> None:
        """Record whom the iteration plans for; a second time changes nothing."""
        ...

    async def write_plan(self, plan: Plan) -> Plan:
        """The plan with its id."""
        ...

    async def write_attempt(self, attempt: Attempt, *, run: int) -> Attempt:
        """The attempt with its id."""
        ...

    async def write_candidate(self, candidate: Candidate) -> Candidate:
        """The candidate with its id, waiting to be judged."""
        ...

    async def load_candidate(self, candidate: int) -> Candidate:
        """A candidate by id. StoreError where there is none."""
        ...

    async def find_evaluation(self, key: str) -> Evaluation | None:
        """The verdict on the same work, where it has been done."""
        ...

    async def write_evaluation(
        self, candidate: Candidate, evaluation: Evaluation, request: EvaluationRequest, backend: str
    ) -> Candidate:
        """The candidate with this as its evaluation."""
        ...

    async def select_beam(self, run: int, iteration: int, beam: Sequence[int], best: int) -> None:
        """Record the iteration's outcome; it is finished then."""
        ...

    async def set_best(self, run: int, candidate: Candidate) -> None:
        """Record a new best."""
        ...

    async def write_insight(self, insight: Insight) -> Insight:
        """The insight with its id."""
        ...
