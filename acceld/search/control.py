"""Control of an active run: steering, and its end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from acceld.errors import BudgetError
from acceld.model import BUDGET_PREFIX, RunState


class RunEnded(Exception):
    """Leaves the loop with the state the run ends in."""

    def __init__(self, state: RunState, message: str) -> None:
        super().__init__(message)
        self.state = state
        self.message = message


def end_of(ended: ExceptionGroup[RunEnded | BudgetError]) -> tuple[RunState, str]:
    """Return the state and message of the first end that was reached; a run whose cap refused a call is paused."""
    end: BaseException = ended
    while isinstance(end, BaseExceptionGroup):
        end = end.exceptions[0]
    if isinstance(end, RunEnded):
        return end.state, end.message
    return RunState.PAUSED, f"{BUDGET_PREFIX}{end}"


@dataclass
class RunControl:
    """The steering state of one run; the daemon changes it, the loop reads it between steps."""

    running: asyncio.Event = field(default_factory=asyncio.Event)
    """Clear while paused."""
    cancelled: bool = False
    pinned: set[int] = field(default_factory=set)
    vetoed: set[int] = field(default_factory=set)
    branches: list[int] = field(default_factory=list)
    """Candidates that join the next iteration's parents."""
    hints: list[str] = field(default_factory=list)
    """Hints that the planner gets from now on."""

    def __post_init__(self) -> None:
        self.running.set()

    def pause(self) -> None:
        """Stop before the next step; what runs, ends."""
        self.running.clear()

    def resume(self) -> None:
        """Go on."""
        self.running.set()

    def cancel(self) -> None:
        """End the run after what runs now."""
        self.cancelled = True
        self.running.set()

    async def checkpoint(self) -> None:
        """Wait while paused. Raises RunEnded where the run was cancelled."""
        await self.running.wait()
        if self.cancelled:
            raise RunEnded(RunState.CANCELLED, "cancelled")
