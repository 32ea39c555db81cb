"""The order in which a gate's trials run: one after another, two at a time while the machine has nothing else to do."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from acceld.evaluate.correctness.gates import Trial

Bad = TypeVar("Bad")


async def first_failure(
    trials: Iterable[Trial], attempt: Callable[[Trial], Awaitable[Bad | None]], wide: Callable[[], bool]
) -> Bad | None:
    """What ``attempt`` says of the first trial, in order, that it does not answer with None.

    ``wide`` is asked before each trial whether a second one may run beside it. Trials under way when one fails, or
    when this is cancelled, are cancelled and waited for.
    """
    waiting = deque(trials)
    running: deque[asyncio.Task[Bad | None]] = deque()
    try:
        while waiting or running:
            while waiting and len(running) < (2 if wide() else 1):
                running.append(asyncio.create_task(_answer(attempt, waiting.popleft())))
            failed = await asyncio.shield(running[0])
            running.popleft()
            if failed is not None:
                return failed
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    return None


async def _answer(attempt: Callable[[Trial], Awaitable[Bad | None]], trial: Trial) -> Bad | None:
    return await attempt(trial)
