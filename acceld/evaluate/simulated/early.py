"""Make the search gate's data set while a traced program is still verified and timed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from acceld.evaluate.case import Failed


class Early:
    """Run the search gate of a traced program, while the program is still verified and timed.

    Its data set is made at once. The program runs on it after :meth:`allow` is called, which sets the event that
    ``gate`` is called with.
    """

    def __init__(self, gate: Callable[[asyncio.Event], Coroutine[None, None, Failed | None]]) -> None:
        self._allowed = asyncio.Event()
        self._task = asyncio.create_task(gate(self._allowed))

    def allow(self) -> None:
        """Let the program run, because it is legal and its latency is known."""
        self._allowed.set()

    async def result(self) -> Failed | None:
        """Return the failure of the gate; None if the program passes. An exception of the gate is raised here."""
        return await self._task

    async def end(self) -> None:
        """End the gate, and everything that it started, if it is still running."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
