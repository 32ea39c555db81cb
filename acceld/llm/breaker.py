"""Stop calling a model that fails repeatedly: pause its calls, then let one call (the probe) test whether it works
again.

While the circuit is open, callers wait and do not fail, because a search can not go on without the model. Waiting calls
fail only after several probes in a row failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from acceld.llm.errors import LLMCircuitOpen, LLMError, LLMRateLimited, LLMTimedOut, LLMUnavailable

State = Literal["closed", "open", "probing"]


@dataclass(frozen=True)
class BreakerSettings:
    """The number of failures after which calls pause, and the number of failed probes after which calls fail."""

    failures_to_open: int = 5
    open_s: float = 60.0
    probes_to_give_up: int = 3
    """Number of failed probes in a row after which waiting calls fail."""


class Breaker:
    """The circuit breaker of one model. A caller does ``probe = await enter()``, then exactly one of ``succeeded()``,
    ``failed(error, probe)`` and ``abandoned(probe)``. A rate limit does not count as a failure, because the limiter
    slows down for a rate limit.
    """

    def __init__(
        self,
        model: str,
        settings: BreakerSettings,
        *,
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.model = model
        self.settings = settings
        self.state: State = "closed"
        self.last: LLMError | None = None
        """The newest failure that counted."""
        self._now = now
        self._sleep = sleep
        self._failures = 0
        self._failed_probes = 0
        self._opened_at = 0.0
        self._settled = asyncio.Event()

    async def enter(self) -> bool:
        """Wait until a request may be sent. Return True if this request is the probe, on whose result all waiting
        requests depend.

        Raise LLMCircuitOpen if ``probes_to_give_up`` probes have failed.
        """
        while True:
            if self.state == "closed":
                return False
            if self._failed_probes >= self.settings.probes_to_give_up and not self._due():
                last = self.last
                why = "" if last is None else f"; the last time: {last.message.removeprefix(f'model {self.model!r}: ')}"
                raise LLMCircuitOpen(
                    f"model {self.model!r} failed {self._failures} times in a row and is still failing{why}",
                    hint=f"{'' if last is None or not last.hint else f'{last.hint} '}The model is asked again in "
                    f"{self.wait_s():.0f} s. Name another model for this role meanwhile.",
                    retry_after_s=self.wait_s(),
                )
            if self.state == "open":
                if self._due():
                    self.state = "probing"
                    self._settled.clear()
                    return True
                await self._sleep(self.wait_s())
            else:
                await self._settled.wait()

    def succeeded(self) -> None:
        """Record an answer, which closes the circuit."""
        self.state = "closed"
        self._failures = 0
        self._failed_probes = 0
        self._settled.set()

    def failed(self, error: LLMError, probe: bool) -> None:
        """Record a failed request. An error about the request alone counts as an answer, because it shows that the
        model works.
        """
        if isinstance(error, LLMRateLimited):
            self.abandoned(probe)
        elif not isinstance(error, LLMUnavailable | LLMTimedOut):
            self.succeeded()
        elif probe:
            self.last = error
            self._failures += 1
            self._failed_probes += 1
            self._open()
        else:
            self.last = error
            self._failures += 1
            if self.state == "closed" and self._failures >= self.settings.failures_to_open:
                self._open()

    def abandoned(self, probe: bool) -> None:
        """Record a call that was cancelled before its answer. If the call was the probe, the next caller becomes the
        probe.
        """
        if probe:
            self.state = "open"
            self._settled.set()

    def _open(self) -> None:
        self.state = "open"
        self._opened_at = self._now()
        self._settled.set()

    def _due(self) -> bool:
        return self.state == "open" and self._now() - self._opened_at >= self.settings.open_s

    def wait_s(self) -> float:
        """Return the seconds until the model may be asked again."""
        return max(0.0, self._opened_at + self.settings.open_s - self._now())
