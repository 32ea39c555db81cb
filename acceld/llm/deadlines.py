"""Watch the deadlines of one request: until its first piece, between two pieces, and for the whole answer."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Self

from acceld.llm.errors import Deadline, LLMTimedOut
from acceld.llm.settings import Deadlines


class DeadlineWatch:
    """End a request that misses a deadline: ``async with DeadlineWatch(deadlines, model) as watch``.

    Call ``piece(text)`` for each piece of the answer. If a deadline passes, the block ends with :class:`LLMTimedOut`,
    which names the deadline and has the visible text so far.
    """

    def __init__(self, deadlines: Deadlines, model: str, *, streamed: bool = True) -> None:
        self._deadlines = deadlines
        self._first_s = deadlines.first_token_s if streamed else deadlines.total_s
        self._model = model
        self._timeout = asyncio.timeout(None)
        self._current: Deadline = "first_token_s"
        self._started_s = time.monotonic()
        self._parts: list[str] = []
        self.first_token_s: float | None = None

    @property
    def text(self) -> str:
        """Return the visible text so far."""
        return "".join(self._parts)

    @property
    def started(self) -> bool:
        """Tell whether any part of the answer has arrived."""
        return self.first_token_s is not None

    @property
    def elapsed_s(self) -> float:
        """Return the seconds since the request was sent."""
        return time.monotonic() - self._started_s

    def piece(self, text: str = "") -> None:
        """Record a piece of the answer: ``text`` if it is visible, empty for reasoning or a keep-alive."""
        if self.first_token_s is None:
            self.first_token_s = self.elapsed_s
        if text:
            self._parts.append(text)
        self._reschedule("idle_s", self._deadlines.idle_s)

    async def __aenter__(self) -> Self:
        self._started_s = time.monotonic()
        await self._timeout.__aenter__()
        self._reschedule("first_token_s", self._first_s)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError as timeout:
            limit_s = getattr(self._deadlines, self._current)
            late = LLMTimedOut(
                f"model {self._model!r} passed {self._current} ({limit_s:g} s)",
                deadline=self._current,
                hint=f"Raise {self._current} for this model if the model is only slow.",
                partial=self.text,
            )
            late.started = self.started
            raise late from timeout

    def _reschedule(self, deadline: Deadline, wait_s: float) -> None:
        left_s = self._deadlines.total_s - self.elapsed_s
        self._current = deadline if wait_s < left_s else "total_s"
        self._timeout.reschedule(asyncio.get_running_loop().time() + max(0.0, min(wait_s, left_s)))
