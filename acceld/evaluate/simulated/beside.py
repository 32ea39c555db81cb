"""Run a program on the inputs of a new data set while the reference is still being computed."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Beside(Generic[T]):
    """Run a trial that begins when the inputs of a new data set are written, and ends after its expected outputs are.

    ``attempt`` is called with two descriptors: a pipe that closes when the data set is complete, and the data set's
    folder, which is renamed when it is complete.
    """

    def __init__(self, attempt: Callable[[int, int], Coroutine[Any, Any, T]]) -> None:
        self._attempt = attempt
        self._task: asyncio.Task[T] | None = None
        self._gate: int | None = None
        """The end of the pipe that is closed when the data set is complete."""

    @contextlib.asynccontextmanager
    async def following(self, partial: Path) -> AsyncIterator[int]:
        """Yield a descriptor for the block, which makes the data set in the folder ``partial``.

        The trial begins when something is written to the descriptor.
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
        """Return the trial's result, after the data set is complete; None if the trial did not begin."""
        self._open()
        return None if self._task is None else await self._task

    async def end(self) -> None:
        """End the trial if it is still running."""
        self._open()
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def again(self) -> None:
        """End the trial, so that it begins again with the next data set."""
        await self.end()
        self._task = None

    def _open(self) -> None:
        """Close the pipe, to tell the trial that the data set is complete."""
        if self._gate is not None:
            os.close(self._gate)
            self._gate = None
