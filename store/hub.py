"""Send committed events to all subscribers.

The newest events stay in memory. A subscriber only remembers the number of the last event it got, and reads
events that have left the memory from the database. So a slow subscriber costs no memory and misses no event.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from itertools import islice

from acceld.events import Event

KEPT = 4096
PAGE = 200


class Hub:
    """Hand events from the thread that writes the database to subscribers on event loops."""

    def __init__(self, read: Callable[[int, int], Awaitable[list[Event]]], last_seq: int) -> None:
        self._read = read
        self._recent: deque[Event] = deque(maxlen=KEPT)
        self._last_seq = last_seq
        self._lock = threading.Lock()
        self._wakers: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._closed = False

    @property
    def last_seq(self) -> int:
        """Return the number of the newest committed event."""
        return self._last_seq

    def publish(self, events: list[Event]) -> None:
        """Publish the events of one commit, in the order of their numbers. The writer's thread calls this after
        each commit.
        """
        with self._lock:
            if events[0].seq != self._last_seq + 1:
                self._recent.clear()  # memory has no gap, so that subscribers read what is missing from the database
            self._recent.extend(events)
            self._last_seq = events[-1].seq
        self._wake()

    def close(self) -> None:
        """End every subscription as soon as its subscriber has got all events."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            wakers = list(self._wakers.items())
        for waker, loop in wakers:
            with suppress(RuntimeError):  # the subscriber's loop has ended
                loop.call_soon_threadsafe(waker.set)

    async def pages(self, after_seq: int) -> AsyncIterator[list[Event]]:
        """Yield every event after ``after_seq`` in order and without a gap, in batches: first the stored events, then
        new ones.
        """
        waker = asyncio.Event()
        with self._lock:
            self._wakers[waker] = asyncio.get_running_loop()
        seq = after_seq
        try:
            while True:
                waker.clear()
                page = self._from_memory(seq)
                if page is None:
                    page = await self._read(seq, PAGE)
                if page:
                    yield page
                    seq = page[-1].seq
                    continue
                if self._closed:
                    return
                await waker.wait()
        finally:
            with self._lock:
                self._wakers.pop(waker, None)

    def _from_memory(self, seq: int) -> list[Event] | None:
        """Return at most ``PAGE`` events after ``seq`` from memory; None if one of these events is no longer in
        memory.
        """
        with self._lock:
            if seq >= self._last_seq:
                return []
            if not self._recent or self._recent[0].seq > seq + 1:
                return None
            skip = seq + 1 - self._recent[0].seq
            stop = min(len(self._recent), skip + PAGE)
            return list(islice(self._recent, max(0, skip), stop))
