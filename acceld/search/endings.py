"""How a run ends: the exception that leaves its loop, and what it comes to as a state and a message."""

from __future__ import annotations

from acceld.errors import BudgetError
from acceld.model import BUDGET_PREFIX, RunState


class RunEnded(Exception):
    """Leaves the loop with the state the run ends in."""

    def __init__(self, state: RunState, message: str) -> None:
        super().__init__(message)
        self.state = state
        self.message = message


def end_of(ended: ExceptionGroup[RunEnded]) -> tuple[RunState, str]:
    """State and message of the first end that was reached."""
    end = _first(ended)
    assert isinstance(end, RunEnded)
    return end.state, end.message


def waiting_for_budget(refused: ExceptionGroup[BudgetError]) -> tuple[RunState, str]:
    """State and message of a run whose cap refused a call."""
    return RunState.PAUSED, f"{BUDGET_PREFIX}{_first(refused)}"


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first leaf of a tree of exceptions."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
