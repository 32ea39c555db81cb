"""Control an active run: steering, and its end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from acceld.errors import BudgetError
from acceld.model import BUDGET_PREFIX, RunState


class RunEnded(Exception):
    """Leave the search loop with the final state of the run."""

    def __init__(self, state: RunState, message: str) -> None:
        super().__init__(message)
        self.state = state
        self.message = message


def end_of(ended: ExceptionGroup[RunEnded | BudgetError]) -> tuple[RunState, str]:
    """Return the state and message of the first end. A run whose cap refused a call is paused."""
    end: BaseException = ended
    while isinstance(end, BaseExceptionGroup):
        end = end.exceptions[0]
    if isinstance(end, RunEnded):
        return end.state, end.message
    return RunState.PAUSED, f"{BUDGET_PREFIX}{end}"


@dataclass
class RunControl:
    """The steering of one run. The daemon changes it; the loop reads it between steps."""

    running: asyncio.Event = field(default_factory=asyncio.Event)
    """Event that is clear while the run is paused."""
    cancelled: bool = False
    pinned: set[int] = field(default_factory=set)
    vetoed: set[int] = field(default_factory=set)
    branches: list[int] = field(default_factory=list)
    """Candidates that join the next iteration's parents."""
    hints: list[str] = field(default_factory=list)
    """Hints for the planner from now on."""

    def __post_init__(self) -> None:
        self.running.set()

    def pause(self) -> None:
        """Stop before the next step. Running work is finished."""
        self.running.clear()

    def resume(self) -> None:
        """Continue the run."""
        self.running.set()

    def cancel(self) -> None:
        """End the run after its running work."""
        self.cancelled = True
        self.running.set()

    async def checkpoint(self) -> None:
        """Wait while paused. Raises RunEnded if the run was cancelled."""
        await self.running.wait()
        if self.cancelled:
            raise RunEnded(RunState.CANCELLED, "cancelled")
