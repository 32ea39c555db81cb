"""Read the database on a few threads, each with its own read-only connection. A daemon is not needed."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from acceld.events import Event
from acceld.store.connection import READER_LIMIT_S, connect_reader, damage
from acceld.store.hub import PAGE
from acceld.store.reads import records

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 3
PROGRESS_STEPS = 10_000
"""Steps of SQLite's virtual machine between two looks at the clock, which ends a query at its time limit."""


class Readers:
    """Threads that read one database, each with a read-only connection. A read ends after ``READER_LIMIT_S`` at
    the latest.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="acceld-read")

    async def read(
        self, function: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run ``function(connection, ...)`` on a reader thread, and return its result."""
        call = self._call
        return await asyncio.get_running_loop().run_in_executor(
            self._pool, lambda: call(lambda connection: function(connection, *args, **kwargs))
        )

    def _call(self, function: Callable[[sqlite3.Connection], T]) -> T:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = connect_reader(self.path)
            self._connections.append(connection)
        deadline = time.monotonic() + READER_LIMIT_S
        connection.set_progress_handler(lambda: int(time.monotonic() > deadline), PROGRESS_STEPS)
        try:
            return function(connection)
        except sqlite3.DatabaseError as error:
            raise damage(self.path, error) or error from error

    def close(self) -> None:
        """Wait for the reads that are running, then end the threads and close the connections. Blocks."""
        self._pool.shutdown()
        for connection in self._connections:
            connection.close()


class HistoryFile:
    """A history that is read without its daemon, for the history server. Another process may change the file
    meanwhile.
    """

    POLL_S = 0.5

    def __init__(self, path: Path) -> None:
        connect_reader(path).close()
        self.path = path
        self._readers = Readers(path)

    async def read(
        self, function: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run ``function(connection, ...)`` on a reader thread, and return its result."""
        return await self._readers.read(function, *args, **kwargs)

    async def pages(self, after_seq: int) -> AsyncIterator[list[Event]]:
        """Yield every event after ``after_seq``, as lists of consecutive events. New events are looked for
        twice a second.
        """
        while True:
            page = await self.read(records.load_events, after_seq, None, PAGE)
            if page:
                yield page
                after_seq = page[-1].seq
            else:
                await asyncio.sleep(self.POLL_S)

    async def close(self) -> None:
        """Close every connection."""
        await asyncio.to_thread(self._readers.close)
