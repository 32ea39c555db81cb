"""Queue requests for evaluation slots by priority. The queue has a limited length.

A caller waits while the queue is full, so that spending on models slows down with the hardware.
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
    """Hold a request that waits for a slot. ``turn`` gets the slot's number."""

    priority: int
    number: int
    since: float = field(compare=False)
    turn: asyncio.Future[int] = field(compare=False)


class Occupancy:
    """Measure the share of the slots that was in use while requests waited."""

    def __init__(self, places: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.places, self._clock = places, clock
        self._since, self._used, self._waited_for = clock(), 0, False
        self._busy_s = self._whole_s = 0.0

    def note(self, used: int, *, waiting: bool) -> None:
        """Record the number of slots in use from now on, and whether a request waits."""
        now = self._clock()
        if self._waited_for:
            self._busy_s += self._used * (now - self._since)
            self._whole_s += self.places * (now - self._since)
        self._since, self._used, self._waited_for = now, used, waiting

    @property
    def share(self) -> float | None:
        """Return the share of the slots' time in use, 0 to 1, over the time in which requests waited; None if none ever
        waited.
        """
        self.note(self._used, waiting=self._waited_for)
        return self._busy_s / self._whole_s if self._whole_s else None


class SlotQueue:
    """Lend ``slots`` slots. Up to ``size`` requests wait, in order of priority and arrival; further callers wait
    outside.
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
        """Wait for a slot, and yield its number for the block. Raises CancelledError once the queue is closed."""
        async with self._submitters:
            slot = await self._enter(priority)
            self._note()
            try:
                yield slot
            finally:
                self._leave(slot)

    async def _enter(self, priority: int) -> int:
        """Return the number of a free slot, after waiting for it."""
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
        """Give a slot back, to the next waiting request if there is one."""
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
        """Return True if a slot is free and no request waits for it."""
        return bool(self._free) and not self._waiting

    def close(self) -> None:
        """Lend no more slots, and cancel waiting requests."""
        self._closed = True
        for waiter in self._waiting:
            waiter.turn.cancel()
        self._waiting.clear()

    def statistics(self) -> dict[str, object]:
        """Return the number of slots, of slots in use and of waiting requests, the busy share, and the oldest request's
        age.
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
    """Return the number of evaluations that run at the same time.

    It is the configured number, or follows from cores and memory, of which a container may allow less than the machine
    has.
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
