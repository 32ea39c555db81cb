"""What a person may change while a run goes on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


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
    """What the planner is told from now on."""

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
