"""Make what the strict gate of a run will need while the run still times candidates."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

from acceld.errors import AcceldError

_PAUSE_S = 0.1
"""Seconds between two looks for a free slot."""


class Ahead:
    """Pieces of work that are done one after the other, each begun only while a slot is free.

    A piece that fails is left out with those after it: the gate does it again and reports why.
    """

    def __init__(self, pieces: Sequence[Callable[[], Awaitable[object]]], idle: Callable[[], bool]) -> None:
        self._pieces, self._idle, self._wanted = pieces, idle, True
        self._task = asyncio.create_task(self._run())

    @property
    def done(self) -> bool:
        """Return True if no piece runs and none will be begun."""
        return self._task.done()

    def enough(self) -> None:
        """Begin no further piece: the gate itself does the rest. A piece that runs is finished for it."""
        self._wanted = False

    async def end(self) -> None:
        """End the piece that runs, and begin no further one."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        with contextlib.suppress(AcceldError):
            for piece in self._pieces:
                while self._wanted and not self._idle():  # noqa: ASYNC110  the queue tells nobody
                    await asyncio.sleep(_PAUSE_S)
                if not self._wanted:
                    return
                await piece()
