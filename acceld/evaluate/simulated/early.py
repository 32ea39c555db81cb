"""Make the search gate's data set while a traced program is still verified and timed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from acceld.evaluate.case import Failed


class Early:
    """The search gate of a program that the tracer has answered. Its data set is made at once; the program runs on it once
    :meth:`allow` is called.

    ``gate`` is called with the event that :meth:`allow` sets.
    """

    def __init__(self, gate: Callable[[asyncio.Event], Coroutine[None, None, Failed | None]]) -> None:
        self._allowed = asyncio.Event()
        self._task = asyncio.create_task(gate(self._allowed))

    def allow(self) -> None:
        """Let the program run: it is legal, and its latency is known."""
        self._allowed.set()

    async def result(self) -> Failed | None:
        """Return the failure; None if the program passes. Raises as the gate does."""
        return await self._task

    async def end(self) -> None:
        """End the gate if it still runs, and whatever it does."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
