"""A clock that moves only when told."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable


class ManualClock:
    """Monotonic seconds, timers and sleeps for limiters and breakers."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, callback: Callable[[], None], /) -> None:
        self._count += 1
        heapq.heappush(self._timers, (self.now_s + delay_s, self._count, callback))

    async def sleep(self, delay_s: float) -> None:
        woken = asyncio.Event()
        self.call_later(delay_s, woken.set)
        await woken.wait()

    async def advance(self, seconds: float) -> None:
        """Advance the time, and run the timers that fall due, in order."""
        end_s = self.now_s + seconds
        await settle()
        while self._timers and self._timers[0][0] <= end_s:
            self.now_s, _, callback = heapq.heappop(self._timers)
            callback()
            await settle()
        self.now_s = end_s
        await settle()


async def settle() -> None:
    """Let every ready task run."""
    for _ in range(20):
        await asyncio.sleep(0)
