"""Do work that the strict gate of a run will need, while the run still times candidates."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

from acceld.errors import AcceldError

_PAUSE_S = 0.1
"""Seconds between two looks for a free slot."""


class Ahead:
    """Do pieces of work one after another, each begun only while a slot is free.

    If a piece fails, it and the following ones are left to the gate, which does them again and reports errors.
    """

    def __init__(self, pieces: Sequence[Callable[[], Awaitable[object]]], idle: Callable[[], bool]) -> None:
        self._pieces, self._idle, self._wanted = pieces, idle, True
        self._task = asyncio.create_task(self._run())

    @property
    def done(self) -> bool:
        """Return True if no piece is running and no further one will begin."""
        return self._task.done()

    def enough(self) -> None:
        """Begin no further piece, because the gate does the rest itself. A running piece goes on, because the gate
        needs it.
        """
        self._wanted = False

    async def end(self) -> None:
        """End the running piece, and begin no further one."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        """Do the pieces."""
        with contextlib.suppress(AcceldError):
            for piece in self._pieces:
                # the queue does not announce free slots
                while self._wanted and not self._idle():  # noqa: ASYNC110  the queue tells nobody
                    await asyncio.sleep(_PAUSE_S)
                if not self._wanted:
                    return
                await piece()
