"""Queue requests for evaluation slots by priority, in a queue of limited length.

While the queue is full, callers wait before they enter it. So a slow device also slows the spending on models.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from acceld.config import EvaluateConfig
from acceld.evaluate.sandbox import cgroups


@dataclass(order=True, slots=True)
class _Waiter:
    """One request that waits for a slot. The future ``turn`` gets the slot's number."""

    priority: int
    number: int
    since: float = field(compare=False)
    turn: asyncio.Future[int] = field(compare=False)


class Occupancy:
    """Measure which share of the slots was in use, during the time in which requests waited."""

    def __init__(self, places: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.places, self._clock = places, clock
        self._since, self._used, self._waited_for = clock(), 0, False
        self._busy_s = self._whole_s = 0.0

    def note(self, used: int, *, waiting: bool) -> None:
        """Record how many slots are in use from now on, and whether a request waits."""
        now = self._clock()
        if self._waited_for:
            self._busy_s += self._used * (now - self._since)
            self._whole_s += self.places * (now - self._since)
        self._since, self._used, self._waited_for = now, used, waiting

    @property
    def share(self) -> float | None:
        """Return the mean share of slots in use, 0 to 1, during the time in which requests waited.

        Return None if no request ever waited.
        """
        self.note(self._used, waiting=self._waited_for)
        return self._busy_s / self._whole_s if self._whole_s else None


class SlotQueue:
    """Lend ``slots`` slots to requests, by priority and then by arrival.

    Up to ``size`` requests wait in the queue. Further callers wait to enter it.
    """

    def __init__(self, slots: int, size: int) -> None:
        self._free = list(range(slots))
        self._slots = slots
        self._submitters = asyncio.Semaphore(size + slots)
        self._waiting: list[_Waiter] = []
        self._numbers = itertools.count()
        self._closed = False
        self._occupancy = Occupancy(slots)

    @asynccontextmanager
    async def place(self, priority: int) -> AsyncIterator[int]:
        """Wait for a slot, lend it to the block, and yield its number. Raise CancelledError once the queue is
        closed.
        """
        async with self._submitters:
            slot = await self._enter(priority)
            self._note()
            try:
                yield slot
            finally:
                self._leave(slot)

    async def _enter(self, priority: int) -> int:
        """Wait until a slot is free, and return its number."""
        if self._closed:
            raise asyncio.CancelledError("the queue is closed")
        if self._free and not self._waiting:
            return self._free.pop()
        turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, _Waiter(priority, next(self._numbers), time.monotonic(), turn))
        self._note()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave(turn.result())
            raise

    def _leave(self, slot: int) -> None:
        """Take a slot back, and give it to the next request that waits."""
        self._free.append(slot)
        while self._free and self._waiting:
            waiter = heapq.heappop(self._waiting)
            if not waiter.turn.done():
                waiter.turn.set_result(self._free.pop())
        self._note()

    def _note(self) -> None:
        """Record how many slots are in use now, and whether a request waits."""
        self._occupancy.note(self._slots - len(self._free), waiting=any(not one.turn.done() for one in self._waiting))

    @property
    def idle(self) -> bool:
        """Tell whether a slot is free and no request waits for it."""
        return bool(self._free) and not self._waiting

    def close(self) -> None:
        """Cancel the waiting requests, and lend no more slots."""
        self._closed = True
        for waiter in self._waiting:
            waiter.turn.cancel()
        self._waiting.clear()

    def statistics(self) -> dict[str, object]:
        """Return figures on slots and waiting requests by name.

        ``busy_share`` is the share that :class:`Occupancy` measures. ``oldest_waiting_s`` is the age of the oldest
        request in seconds.
        """
        waiting = [one for one in self._waiting if not one.turn.done()]
        return {
            "slots": self._slots,
            "slots_in_use": self._slots - len(self._free),
            "waiting": len(waiting),
            "busy_share": self._occupancy.share,
            "oldest_waiting_s": max((time.monotonic() - one.since for one in waiting), default=0.0),
        }


def slots_of(config: EvaluateConfig) -> int:
    """Return how many evaluations run at the same time: the configured number.

    If no number is configured, the result follows from the cores and the free memory of the machine, or of the
    container if the container allows less.
    """
    if config.slots:
        return config.slots
    free = 0.0
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/meminfo", encoding="ascii") as file:
        amounts = {line.split(":")[0]: int(line.split()[1]) for line in file}
        free = amounts["MemAvailable"] / 2**20
    allowed = cgroups.memory_limit()
    free = min(free, allowed / 2**30) if allowed is not None else free
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, int(free // config.memory_gib) if free else 1))
