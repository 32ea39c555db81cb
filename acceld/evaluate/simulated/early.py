"""Start the search gate of a traced program before the program is verified and timed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from acceld.evaluate.case import Failed


class Early:
    """The search gate of a traced program, started before the program is verified and timed.

    ``gate`` makes the data set at once. It runs the program on the data set only after the event that it gets
    is set by :meth:`allow`.
    """

    def __init__(self, gate: Callable[[asyncio.Event], Coroutine[None, None, Failed | None]]) -> None:
        self._allowed = asyncio.Event()
        self._task = asyncio.create_task(gate(self._allowed))

    def allow(self) -> None:
        """Let the gate run the program, because the program was found legal and has a latency."""
        self._allowed.set()

    async def result(self) -> Failed | None:
        """Return the failure of the gate; None if the program passes. Raises the exceptions of the gate."""
        return await self._task

    async def end(self) -> None:
        """Cancel the gate and all that it started, if it is still running."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
