"""Limit one model's simultaneous calls, requests a minute and tokens a minute, and share them fairly among runs.

The limits are exact: no window of ``WINDOW_S`` seconds has more requests or tokens than allowed. Each caller has an
owner (a run). Owners are served in turn, and the callers of one owner in order of arrival. No caller overtakes another
that waits for tokens.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

WINDOW_S = 60.0


class Clock(Protocol):
    """Interface of a clock with timers; by default the running event loop."""

    def time(self) -> float:
        """Return a monotonic time in seconds."""
        ...

    def call_later(self, delay_s: float, callback: Callable[[], None], /) -> object:
        """Call ``callback`` after ``delay_s`` seconds."""
        ...


@dataclass(frozen=True)
class Limits:
    """Rate limits of one model. A limit that is None does not exist."""

    concurrency: int = 8
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    def __post_init__(self) -> None:
        for name in ("concurrency", "requests_per_minute", "tokens_per_minute"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")


@dataclass
class Slot:
    """Permission to send one request."""

    started_s: float
    tokens: int

    def settle(self, tokens: int) -> None:
        """Count the tokens that the call used, in place of the tokens reserved for it."""
        self.tokens = tokens


@dataclass
class _Waiter:
    tokens: int
    granted: asyncio.Future[Slot] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Limiter:
    """Grant permission for calls: ``async with limiter.slot(tokens, owner) as slot``."""

    def __init__(self, limits: Limits, clock: Clock | None = None) -> None:
        self.limits = limits
        self._clock = clock
        self._active = 0
        self._recent: deque[Slot] = deque()
        self._waiting: OrderedDict[str, deque[_Waiter]] = OrderedDict()
        self._paused_until_s = 0.0
        self._timer_s: float | None = None

    @asynccontextmanager
    async def slot(self, tokens: int, owner: str = "") -> AsyncIterator[Slot]:
        """Wait until a call may start, and yield its slot. ``tokens`` is the most that prompt and answer can use
        together.

        A call with more tokens than a minute allows starts once no other call is in the window, and runs alone.
        """
        waiter = _Waiter(tokens)
        self._waiting.setdefault(owner, deque()).append(waiter)
        self._grant()
        try:
            slot = await waiter.granted
        except asyncio.CancelledError:
            if waiter.granted.done() and not waiter.granted.cancelled():
                self._active -= 1
            else:
                self._forget(owner, waiter)
            self._grant()
            raise
        try:
            yield slot
        finally:
            self._active -= 1
            self._grant()

    def pause(self, seconds: float) -> None:
        """Start no call for the next ``seconds``, because the provider asked to wait."""
        self._paused_until_s = max(self._paused_until_s, self._now() + seconds)

    def _now(self) -> float:
        return (self._clock or asyncio.get_running_loop()).time()

    def _forget(self, owner: str, waiter: _Waiter) -> None:
        queue = self._waiting.get(owner)
        if queue is not None and waiter in queue:
            queue.remove(waiter)
            if not queue:
                del self._waiting[owner]

    def _expire(self) -> None:
        now_s = self._now()
        while self._recent and now_s - self._recent[0].started_s >= WINDOW_S:
            self._recent.popleft()

    def _grant(self) -> None:
        while self._waiting and self._active < self.limits.concurrency:
            owner, queue = next(iter(self._waiting.items()))
            waiter = queue[0]
            if waiter.granted.done():
                self._forget(owner, waiter)
                continue
            delay_s = self._delay_s(waiter.tokens)
            if delay_s > 0:
                self._wake_after(delay_s)
                return
            queue.popleft()
            self._waiting.move_to_end(owner)
            if not queue:
                del self._waiting[owner]
            slot = Slot(self._now(), waiter.tokens)
            self._recent.append(slot)
            self._active += 1
            waiter.granted.set_result(slot)

    def _delay_s(self, tokens: int) -> float:
        """Return the seconds until a call of ``tokens`` tokens may start."""
        self._expire()
        now_s = self._now()
        delay_s = max(0.0, self._paused_until_s - now_s)
        limits = self.limits
        if limits.requests_per_minute is not None and len(self._recent) >= limits.requests_per_minute:
            blocking = self._recent[len(self._recent) - limits.requests_per_minute]
            delay_s = max(delay_s, blocking.started_s + WINDOW_S - now_s)
        if limits.tokens_per_minute is not None:
            promised = sum(slot.tokens for slot in self._recent)
            for slot in self._recent:
                if promised + tokens <= limits.tokens_per_minute:
                    break
                promised -= slot.tokens
                delay_s = max(delay_s, slot.started_s + WINDOW_S - now_s)
        return delay_s

    def _wake_after(self, delay_s: float) -> None:
        clock = self._clock or asyncio.get_running_loop()
        due_s = clock.time() + delay_s
        if self._timer_s is not None and self._timer_s <= due_s:
            return
        self._timer_s = due_s

        def wake() -> None:
            self._timer_s = None
            self._grant()

        clock.call_later(delay_s, wake)
