"""Run a program on the inputs of a new data set while the oracle still computes the expected outputs."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Beside(Generic[T]):
    """A trial that runs while its data set is being made.

    The trial begins when the inputs are written, and can end only after the expected outputs are written too.
    ``attempt`` starts the trial with two descriptors: the read end of a pipe, and the folder of the data set. When
    the data set is complete, the pipe closes and the folder is renamed.
    """

    def __init__(self, attempt: Callable[[int, int], Coroutine[Any, Any, T]]) -> None:
        self._attempt = attempt
        self._task: asyncio.Task[T] | None = None
        self._gate: int | None = None
        """The end of the pipe that is closed when the data set is complete."""

    @contextlib.asynccontextmanager
    async def following(self, partial: Path) -> AsyncIterator[int]:
        """Yield a descriptor to the block, in which another process makes the data set in the folder ``partial``.

        That process writes to the descriptor when the inputs are complete. The trial begins then.
        """
        read, write = os.pipe()
        loop = asyncio.get_running_loop()
        loop.add_reader(read, self._begin, loop, read, partial)
        try:
            yield write
        finally:
            loop.remove_reader(read)
            os.close(read)
            os.close(write)

    def _begin(self, loop: asyncio.AbstractEventLoop, read: int, partial: Path) -> None:
        loop.remove_reader(read)
        with contextlib.suppress(FileNotFoundError):  # the data set is complete already
            folder = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            closes, self._gate = os.pipe()
            self._task = loop.create_task(self._run(closes, folder))

    async def _run(self, closes: int, folder: int) -> T:
        try:
            return await self._attempt(closes, folder)
        finally:
            os.close(closes)
            os.close(folder)

    async def result(self) -> T | None:
        """Tell the trial that the data set is complete, and return the trial's result; None if the trial never
        began.
        """
        self._open()
        return None if self._task is None else await self._task

    async def end(self) -> None:
        """Cancel the trial if it is still running."""
        self._open()
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def again(self) -> None:
        """Cancel the trial, so that a new trial can begin when the data set is made again."""
        await self.end()
        self._task = None

    def _open(self) -> None:
        """Close the pipe, which tells the trial that the data set is complete."""
        if self._gate is not None:
            os.close(self._gate)
            self._gate = None
