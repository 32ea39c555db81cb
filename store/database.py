"""Open the history for the daemon: one writer, many readers, and a stream of events.

Open it with ``store = await asyncio.to_thread(Store.open, path)`` and end with ``await store.close()``::

    run = await store.change(create_run, spec)
    await store.change(set_run_state, run.id, RunState.RUNNING)
    candidates = await store.read(load_candidates, run.id)

``change`` runs a function of :mod:`acceld.store.changes` as one transaction, together with the events that the
function reports. ``change`` returns after the commit; the events reach subscribers after the commit, too.
Everything that a search writes may be written twice: the second time nothing changes, and the caller gets the
id of the first row.

``read`` runs a function of :mod:`acceld.store.reads` on a reader thread with a read-only connection.
``subscribe(after_seq)`` yields the stored events after a number, then each new event, without a gap.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from acceld.events import Event
from acceld.store.connection import WriterLock, connect_writer, opening_error, refuse_emptied
from acceld.store.hub import Hub
from acceld.store.reader import Readers
from acceld.store.reads.records import last_seq, load_events, newest_at
from acceld.store.schema.migrations import migrate
from acceld.store.writer import Transaction, Writer

P = ParamSpec("P")
T = TypeVar("T")


class Store:
    """The open history of one state folder."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: WriterLock, writer_options: Any) -> None:
        self.path = path
        self.migrated_from: Path | None = None
        """Path of the copy that was made before a migration; None if no migration was needed."""
        self._connection = connection
        self._lock = lock
        self._readers = Readers(path)
        self.hub = Hub(self._events_after, last_seq(connection))
        self.writer = Writer(path, connection, self.hub.publish, newest_at=newest_at(connection), **writer_options)

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        reserve_bytes: int = 0,
        redact: Callable[[str], str] | None = None,
    ) -> Store:
        """Open or create the database, and migrate it to this acceld's schema. The call blocks, so call it outside of
        the event loop.

        A file of ``reserve_bytes`` lies beside the database and is deleted when the disk is full. ``redact`` is
        applied to every text before it is written. Raise StoreError if the file can not be opened, has a newer
        schema, or is being written by another process.
        """
        path = Path(path).absolute()
        refuse_emptied(path)
        lock = WriterLock(path)
        try:
            connection = connect_writer(path)
            try:
                copy = migrate(connection, path)
                reserve = path.with_name(path.name + ".reserve") if reserve_bytes else None
                store = cls(
                    path, connection, lock, {"reserve": reserve, "reserve_bytes": reserve_bytes, "redact": redact}
                )
            except sqlite3.OperationalError as error:  # such as a disk or a limit on files that leaves no room
                connection.close()
                raise opening_error(path, error) from error
            except BaseException:
                connection.close()
                raise
        except BaseException:
            lock.release()
            raise
        store.migrated_from = copy
        return store

    async def close(self) -> None:
        """Commit waiting changes, end subscriptions, and close the database."""
        await asyncio.to_thread(self.close_now)

    def close_now(self) -> None:
        """Close the database as :meth:`close` does, blocking, for use without an event loop."""
        self.writer.close()
        self.hub.close()
        self._readers.close()
        self._connection.close()
        self._lock.release()

    async def change(self, function: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``function(transaction, ...)`` as one transaction, and return its result after the commit."""
        result: T = await self.writer.submit(lambda tx: function(tx, *args, **kwargs))
        return result

    async def read(
        self, function: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run ``function(connection, ...)`` on a reader thread with a read-only connection, and return its result."""
        return await self._readers.read(function, *args, **kwargs)

    async def _events_after(self, after: int, limit: int) -> list[Event]:
        return await self.read(load_events, after, None, limit)

    def pages(self, after_seq: int) -> AsyncIterator[list[Event]]:
        """Yield the same events as :meth:`subscribe`, as lists of consecutive events."""
        return self.hub.pages(after_seq)

    async def subscribe(self, after_seq: int) -> AsyncIterator[Event]:
        """Yield every event after ``after_seq``, in order and without a gap: first the stored events, then each new
        one.
        """
        async for page in self.hub.pages(after_seq):
            for event in page:
                yield event
