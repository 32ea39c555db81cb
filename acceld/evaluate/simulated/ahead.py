"""Prepare the strict gate of a run while the run still times candidates."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

from acceld.errors import AcceldError

_PAUSE_S = 0.1
"""Seconds between two looks for a free slot."""


class Ahead:
    """Run ``pieces`` of preparation one after another. Each piece begins only while a slot is free.

    If a piece fails, the strict gate does this piece and the later pieces itself, and reports their errors.
    """

    def __init__(self, pieces: Sequence[Callable[[], Awaitable[object]]], idle: Callable[[], bool]) -> None:
        self._pieces, self._idle, self._wanted = pieces, idle, True
        self._task = asyncio.create_task(self._run())

    @property
    def done(self) -> bool:
        """Tell whether no piece is running and no further piece will begin."""
        return self._task.done()

    def enough(self) -> None:
        """Begin no further piece: the strict gate has started and does the remaining work itself.

        A running piece goes on, because the gate needs its result.
        """
        self._wanted = False

    async def end(self) -> None:
        """Cancel the running piece, and begin no further one."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        """Run the pieces of the work in order, up to the first that fails. Each waits until the evaluator is idle."""
        with contextlib.suppress(AcceldError):
            for piece in self._pieces:
                # the queue does not announce free slots
                while self._wanted and not self._idle():  # noqa: ASYNC110  the queue tells nobody
                    await asyncio.sleep(_PAUSE_S)
                if not self._wanted:
                    return
                await piece()
