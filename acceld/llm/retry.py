"""Send failed requests again; no other module does.

Waits are random (full jitter) and respect the header Retry-After. A request is not sent again once visible text of
its answer has arrived.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

from acceld.llm.errors import LLMError, LLMTimedOut

T = TypeVar("T")


@dataclass(frozen=True)
class RetryPolicy:
    """Number of tries of one request, and the waits between them."""

    max_tries: int = 6
    """Limit on all requests of a call, including the first."""
    base_s: float = 1.0
    """Upper end of the first wait in seconds; it doubles with every try."""
    cap_s: float = 60.0
    """Limit in seconds on the waits that acceld chooses itself."""
    max_timeouts: int = 2
    """Limit on requests that passed a deadline, whatever ``max_tries`` is."""
    retry_after_cap_s: float = 300.0
    """Longest wait that a provider may ask for. If it asks for a longer wait, the call fails at
    once.
    """

    def wait_s(self, tries: int, error: LLMError, rng: random.Random) -> float | None:
        """Return the seconds to wait after ``tries`` failed requests; None to give up.

        The wait is uniform between 0 and ``min(cap_s, base_s * 2**(tries - 1))`` (full jitter), so that callers that
        failed together do not retry together. A Retry-After is waited in full, and at most ``base_s`` of jitter is
        added. A Retry-After above ``retry_after_cap_s`` ends the tries.
        """
        if tries >= self.max_tries or not error.may_be_retried:
            return None
        jitter_s = rng.uniform(0.0, min(self.cap_s, self.base_s * 2 ** (tries - 1)))
        if error.retry_after_s is None:
            return jitter_s
        if error.retry_after_s > self.retry_after_cap_s:
            return None
        return error.retry_after_s + min(jitter_s, self.base_s)


def retry_after_s(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds that a response asks to wait, from ``retry-after-ms``, or from ``retry-after`` in seconds or
    as an HTTP date; None without a valid value.

    A date is compared with the response's own ``date``, else with ``now``, this machine's time. A date in the past
    gives 0.
    """
    values = {name.lower(): value for name, value in headers.items()}
    try:
        return max(0.0, float(values["retry-after-ms"]) / 1000.0)
    except (KeyError, ValueError):
        pass
    value = values.get("retry-after")
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    moment = _moment(value)
    if moment is None:
        return None
    # the provider's own time: this machine's clock may be hours off
    sent = _moment(values.get("date", "")) or now or datetime.now(UTC)
    return max(0.0, (moment - sent).total_seconds())


def _moment(date: str) -> datetime | None:
    """Return the time that an HTTP date names; None for any other text."""
    try:
        moment = parsedate_to_datetime(date)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


async def with_retries(
    request: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    *,
    rng: random.Random,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    on_wait: Callable[[LLMError, float], Awaitable[None]] | None = None,
) -> tuple[T, int]:
    """Send a request until it is answered or may not be sent again. Return (answer, number of requests).

    Raise LLMError, the last failure, if no request was answered; its ``tries`` is the number of requests.
    """
    tries = timeouts = 0
    while True:
        tries += 1
        try:
            return await request(), tries
        except LLMError as error:
            error.tries = tries
            timeouts += isinstance(error, LLMTimedOut)
            wait_s = policy.wait_s(tries, error, rng)
            if wait_s is None or timeouts >= policy.max_timeouts:
                asked_s = error.retry_after_s
                if asked_s is not None and asked_s > policy.retry_after_cap_s and not error.hint:
                    until = f"in {asked_s / 60:.0f} minutes" if math.isfinite(asked_s) else "later"
                    error.hint = f"The provider asks to come back {until}: resume the run then."
                raise
            if on_wait is not None:
                await on_wait(error, wait_s)
        await sleep(wait_s)
