"""Write the database with one thread and one connection. A caller gets its answer after the commit.

Changes that wait at the same time share one commit, at most ``GROUP`` of them. Each runs in a savepoint of its
own, so a failing change undoes no other. The events of a commit are published after it, in the order of their
numbers.

A full disk or an I/O error loses no change. The writer rolls the group back, deletes the reserve file and tries
the group again, until it commits or the store closes. Until then the callers wait, and with them the search.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceld.errors import AcceldError, StoreError
from acceld.events import Event, EventData, Notice, from_json, to_json
from acceld.store.connection import damage
from acceld.store.rows import clean, dump, load

log = logging.getLogger(__name__)

CAPACITY = 1024
GROUP = 64
RETRY_S = 1.0
_WRONG_S = 24 * 3600.0
"""A clock that is set back by at least so many seconds was wrong before: its new time is believed at once."""
_CATCH_UP = 0.9
"""Seconds that pass in the history for each second while the clock, set back, catches up. So a span that is measured
meanwhile is a tenth too short, not 0.
"""
_PASSING = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM)
"""SQLite's primary result codes for errors that may go away, such as a full disk."""


class Transaction:
    """Access of one change to the database: it runs SQL and writes events."""

    def __init__(
        self, connection: sqlite3.Connection, at: float, redact: Callable[[str], str] | None, events: list[Event]
    ) -> None:
        self.connection = connection
        self.at = at
        """Time of the change in seconds since the epoch."""
        self._events = events
        """Events of the whole commit. Each event is appended when its row is written."""
        self._redact = redact

    def execute(self, sql: str, values: Any = ()) -> sqlite3.Cursor:
        """Run one statement. In its text values, each key of a model provider is replaced by a fingerprint."""
        if self._redact is not None:
            values = self._redacted(values, self._redact)
        return self.connection.execute(sql, values)

    def redacted(self, text: str) -> str:
        """Return a text as it will be stored: each key of a model provider is replaced by a fingerprint.

        Hash this text, not the original, because a stored hash is the hash of the stored text.
        """
        return text if self._redact is None else self._redact(text)

    def insert(self, table: str, values: dict[str, Any]) -> int:
        """Insert one row and return its id."""
        columns = ", ".join(values)
        holes = ", ".join("?" * len(values))
        row = self.execute(f"INSERT INTO {table} ({columns}) VALUES ({holes})", tuple(values.values())).lastrowid
        assert row is not None
        return row

    def update(self, table: str, row_id: int, **values: Any) -> None:
        """Change columns of the row with this id. Raise StoreError if there is no such row."""
        sets = ", ".join(f"{name} = ?" for name in values)
        if self.execute(f"UPDATE {table} SET {sets} WHERE id = ?", (*values.values(), row_id)).rowcount != 1:
            raise StoreError(
                f"the table {table} has no row {row_id}", hint="acceld doctor database examines the history"
            )

    def one(self, sql: str, values: Any = ()) -> sqlite3.Row | None:
        """Return the first row of the result; None if the result is empty."""
        row: sqlite3.Row | None = self.execute(sql, values).fetchone()
        return row

    def event(self, data: EventData, run: int | None = None) -> Event:
        """Write an event in this transaction, and return it. Subscribers get it after the commit."""
        text = clean(dump(to_json(data)))
        if self._redact is not None:
            text = self._redact(text)
            data = from_json(data.kind, load(text))
        seq = self.insert("events", {"at": self.at, "kind": data.kind, "run": run, "data": text})
        event = Event(data, run, seq, self.at)
        self._events.append(event)
        return event

    @staticmethod
    def _redacted(values: Any, redact: Callable[[str], str]) -> Any:
        if isinstance(values, dict):
            return {name: redact(value) if isinstance(value, str) else value for name, value in values.items()}
        return tuple(redact(value) if isinstance(value, str) else value for value in values)


Change = Callable[[Transaction], Any]


@dataclass(eq=False)
class _Item:
    change: Change
    done: Callable[[Any, BaseException | None], None]
    result: Any = None
    error: BaseException | None = None


class Writer:
    """Run changes one after another on its own thread."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        publish: Callable[[list[Event]], None],
        *,
        reserve: Path | None = None,
        reserve_bytes: int = 0,
        redact: Callable[[str], str] | None = None,
        newest_at: float = 0.0,
    ) -> None:
        self._path = path
        self._connection = connection
        self._publish = publish
        self._reserve = reserve
        self._reserve_bytes = reserve_bytes
        self._redact = redact
        self._queue: queue.Queue[_Item | None] = queue.Queue()
        self._places = asyncio.Semaphore(CAPACITY)
        self._closing = threading.Event()
        self.degraded = ""
        """Error because of which nothing can be written at the moment; empty if writing works."""
        self.commits = 0
        self._last, self._ticks = newest_at, time.monotonic()
        """Time of the last change, in seconds since the epoch and by the monotonic clock."""
        self._thread = threading.Thread(target=self._work, name="acceld-store", daemon=True)
        self._thread.start()

    async def submit(self, change: Change) -> Any:
        """Run ``change`` in a transaction, and return its result after the commit. Errors of ``change`` are
        raised here.

        Waits while ``CAPACITY`` changes are queued. Raise StoreError if the database is closed.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        future.add_done_callback(_retrieve)

        def done(result: Any, error: BaseException | None) -> None:
            def resolve() -> None:
                if not future.cancelled():
                    if error is None:
                        future.set_result(result)
                    else:
                        future.set_exception(error)

            loop.call_soon_threadsafe(resolve)

        async with self._places:
            if self._closing.is_set():
                raise StoreError("the database is closed", hint="acceld restart opens it again")
            self._queue.put_nowait(_Item(change, done))
            # A submitted change is always made: cancelling the caller does not interrupt it.
            return await asyncio.shield(future)

    def waiting(self) -> int:
        """Return the number of changes in the queue."""
        return self._queue.qsize()

    def close(self) -> None:
        """Finish the waiting changes, then end the thread. Blocks."""
        self._closing.set()
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        self._fill_reserve()
        ending = False
        while not ending:
            first = self._queue.get()
            if first is None:
                break
            group = [first]
            while len(group) < GROUP:
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    break
                if item is None:
                    ending = True
                    break
                group.append(item)
            self._settle(group)

    def _settle(self, group: list[_Item]) -> None:
        """Commit the group, then publish its events and answer its callers. If an error may go away, such as a full
        disk, try again.
        """
        events: list[Event] = []
        while True:
            try:
                events = self._commit(group)
                break
            except sqlite3.Error as error:
                self._roll_back()
                if not self._may_pass(error) or self._closing.is_set():
                    failure = damage(self._path, error) or StoreError(
                        f"the database refused a change: {error}", hint="acceld doctor database checks the file."
                    )
                    for item in group:
                        item.result, item.error = None, failure
                    break
                self._prepare_another_try(error)
            except Exception as error:  # noqa: BLE001 - a broken change must not end the thread: callers would wait for ever
                self._roll_back()
                for item in group:
                    item.result, item.error = None, error
                break
        if events:
            self._publish(events)
        for item in group:
            item.done(item.result, item.error)

    def _commit(self, group: list[_Item]) -> list[Event]:
        """Run the changes of the group in one commit. Return their events in the order of the rows."""
        connection = self._connection
        events: list[Event] = []
        connection.execute("BEGIN IMMEDIATE")
        for item in group:
            transaction = Transaction(connection, self._now(), self._redact, events)
            kept = len(events)
            connection.execute("SAVEPOINT change")
            try:
                item.result, item.error = item.change(transaction), None
            except (AcceldError, ValueError, KeyError, TypeError, sqlite3.IntegrityError) as error:
                connection.execute("ROLLBACK TO change")
                item.result, item.error = None, _for_caller(error)
                del events[kept:]
            connection.execute("RELEASE change")
        if self.degraded:
            recovered = Transaction(connection, self._now(), None, events)
            recovered.event(Notice(level="info", text=f"Storage works again ({self.degraded})", hint=""), None)
        connection.execute("COMMIT")
        self.commits += 1
        if self.degraded:
            self.degraded = ""
            self._fill_reserve()
        return events

    def _now(self) -> float:
        """Return the time of a change, in seconds since the epoch.

        Nothing may end before it started. So if the clock was set back by less than a day, the time goes on from that of
        the last change, at the rate ``_CATCH_UP``, until the clock has caught up.
        """
        now, ticks = time.time(), time.monotonic()
        if 0.0 < self._last - now < _WRONG_S:
            now = max(now, self._last + _CATCH_UP * (ticks - self._ticks))
        self._last, self._ticks = now, ticks
        return now

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error as error:
                log.warning("rollback failed: %s", error)

    @staticmethod
    def _may_pass(error: sqlite3.Error) -> bool:
        return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _PASSING

    def _prepare_another_try(self, error: sqlite3.Error) -> None:
        """After an error of the disk, free space for another try by deleting the reserve file. If the file is gone
        already, wait.
        """
        if not self.degraded:
            log.error("storage is degraded: %s", error)
        self.degraded = str(error)
        if self._reserve is not None and self._reserve.exists():
            self._reserve.unlink()
            return
        self._closing.wait(RETRY_S)

    def _fill_reserve(self) -> None:
        """Write the reserve file, whose space is freed when the disk is full. Without space for it, only log a
        warning.
        """
        if self._reserve is None or not self._reserve_bytes or self._reserve.exists():
            return
        try:
            descriptor = os.open(self._reserve, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, self._reserve_bytes)
            finally:
                os.close(descriptor)
        except OSError as error:
            log.warning("no reserve of %d bytes: %s", self._reserve_bytes, error.strerror)
            self._reserve.unlink(missing_ok=True)


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Mark the error of a change as seen, so that asyncio does not report it if the caller was cancelled."""
    if not future.cancelled():
        future.exception()


def _for_caller(error: Exception) -> Exception:
    if isinstance(error, sqlite3.IntegrityError):
        return StoreError(f"the database refused a change: {error}", hint="acceld doctor database examines the history")
    return error
