"""A full disk, failing I/O, killed migrations, copies under load, a clock that jumps (quick forms)."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from acceld.errors import StoreError
from acceld.events import EventKind, Notice
from acceld.store.changes.runs import write_notice
from acceld.store.connection import WriterLock, connect_writer
from acceld.store.database import Store
from acceld.store.maintenance import backup, check
from acceld.store.reads.records import load_events
from acceld.store.schema.migrations import SCHEMA_VERSION, migrate
from tests.faults.harness import fill_disk, kill_migrations
from tests.store import records


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """Yield an open store."""
    opened = await asyncio.to_thread(Store.open, tmp_path / "acceld.db")
    yield opened
    await opened.close()


@pytest.mark.parametrize("limit_bytes", [1_000_000, 1_300_001])
def test_a_file_that_can_not_grow_loses_nothing_and_works_again(tmp_path: Path, limit_bytes: int) -> None:
    result = fill_disk(tmp_path, limit_bytes)
    assert result.readable >= result.acknowledged > 20
    assert result.stored == result.written > result.acknowledged
    assert result.problems == ()
    assert result.recovered_s <= 5  # the threshold of the fault table, not a measurement


class FailingConnection:
    """A connection whose ``at``-th statement fails like a failing disk, ``times`` times in a row."""

    def __init__(self, connection: sqlite3.Connection, at: int, times: int, code: int) -> None:
        self._connection = connection
        self._left, self._times, self._code = at, times, code
        self.failures = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        """Fail, or execute the statement."""
        self._left -= 1
        if self._left <= 0 and self.failures < self._times and sql != "ROLLBACK":
            self.failures += 1
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = self._code
            raise error
        return self._connection.execute(sql, *values)


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL])
async def test_a_failure_at_any_statement_is_survived(
    tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acceld.store.writer.RETRY_S", 0.001)
    store = await asyncio.to_thread(Store.open, tmp_path / "acceld.db")
    run, _ = await records.begin(store)
    real = store.writer._connection
    for at in range(1, 40):
        failing = FailingConnection(real, at, times=2, code=code)
        store.writer._connection = failing  # type: ignore[assignment]
        texts = [f"{at} {number}" for number in range(5)]
        await asyncio.gather(*(store.change(write_notice, run.id, "info", text) for text in texts))
        if failing.failures == 0:
            for _ in range(at):
                await store.change(write_notice, run.id, "info", f"{at} more")
        assert failing.failures == 2
        store.writer._connection = real
        reported = [e.data.text for e in await store.read(load_events, limit=5000) if isinstance(e.data, Notice)]
        assert sorted(text for text in reported if text in texts) == sorted(texts)
    assert store.writer.degraded == ""
    await store.close()
    assert check(store.path).problems == ()


async def test_a_change_that_waits_on_a_broken_disk_is_refused_when_the_store_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acceld.store.writer.RETRY_S", 0.01)
    store = await asyncio.to_thread(Store.open, tmp_path / "acceld.db")
    real = store.writer._connection
    store.writer._connection = FailingConnection(real, 1, 10**9, sqlite3.SQLITE_FULL)  # type: ignore[assignment]
    waiting = asyncio.create_task(store.change(write_notice, None, "info", "never"))
    while not store.writer.degraded:  # noqa: ASYNC110 - the writer's thread sets it
        await asyncio.sleep(0.01)
    await store.close()
    with pytest.raises(StoreError, match="disk I/O error"):
        await waiting


async def test_the_reserve_is_given_up_when_the_disk_is_full(tmp_path: Path) -> None:
    store = await asyncio.to_thread(lambda: Store.open(tmp_path / "acceld.db", reserve_bytes=1 << 20))
    reserve = tmp_path / "acceld.db.reserve"
    await store.change(write_notice, None, "info", "one")
    assert (await asyncio.to_thread(reserve.stat)).st_size == 1 << 20
    real = store.writer._connection
    store.writer._connection = FailingConnection(real, 1, 1, sqlite3.SQLITE_FULL)  # type: ignore[assignment]
    await store.change(write_notice, None, "info", "two")
    texts = [event.data.text for event in await store.read(load_events) if isinstance(event.data, Notice)]
    assert texts == ["one", "two", "Storage works again (disk I/O error)"]
    await store.close()


def test_a_migration_killed_at_any_statement_is_old_or_new_and_has_its_copy(tmp_path: Path) -> None:
    path = tmp_path / "acceld.db"

    async def fill() -> None:
        store = await asyncio.to_thread(Store.open, path)
        await records.small_run(store)
        await store.close()

    asyncio.run(fill())
    steps = kill_migrations(path)
    assert len(steps) > 8
    for _, version, sound, whole, any_of_it in steps[:-1]:
        assert sound
        assert (version, whole, any_of_it) in {(SCHEMA_VERSION, 0, 0), (SCHEMA_VERSION + 1, 1, 1)}
    assert steps[-1][1:] == (SCHEMA_VERSION + 1, 1, 1, 1)
    copies = sorted((tmp_path / "backups").glob(f"acceld-v{SCHEMA_VERSION}-*.db"))
    assert copies
    with sqlite3.connect(copies[-1]) as copy:
        assert copy.execute("SELECT count(*) FROM runs").fetchone() == (1,)
    copy.close()


def test_a_first_migration_killed_at_any_statement_can_be_done_again(tmp_path: Path) -> None:
    for place in range(2, 60, 9):
        path = tmp_path / f"{place}.db"
        connection = connect_writer(path)
        left = [place]

        def count(sql: str, left: list[int] = left, connection: sqlite3.Connection = connection) -> None:
            left[0] -= 1
            if left[0] == 0:
                connection.interrupt()

        connection.set_trace_callback(count)
        try:
            migrate(connection, path)
        except sqlite3.OperationalError as error:
            assert "interrupted" in str(error)
        connection.close()
        Store.open(path).close_now()
        assert check(path).problems == ()


async def test_a_copy_is_made_while_rows_are_written(store: Store, tmp_path: Path) -> None:
    run, _ = await records.begin(store)
    stop = False
    many = asyncio.Event()

    async def write() -> None:
        for number in itertools.count():
            await asyncio.gather(*(store.change(write_notice, run.id, "info", "x" * 1000) for _ in range(20)))
            if number == 20:
                many.set()
            if stop:
                return

    writing = asyncio.create_task(write())
    await many.wait()
    for number in range(3):
        await asyncio.to_thread(backup, store.path, tmp_path / f"copy{number}.db")
    stop = True
    await writing
    for number in range(3):
        assert (await asyncio.to_thread(check, tmp_path / f"copy{number}.db")).problems == ()


async def test_a_clock_that_jumps_changes_no_order(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = await records.begin(store)
    for at in (time.time(), time.time() - 86400, 2**31 + 5, 0.0):
        monkeypatch.setattr("acceld.store.writer.time.time", lambda at=at: at)
        await store.change(write_notice, run.id, "info", str(at))
    monkeypatch.undo()
    events = await store.read(load_events)
    assert [event.seq for event in events] == sorted(event.seq for event in events)
    assert [event.kind for event in events[-4:]] == [EventKind.NOTICE] * 4


async def test_the_log_does_not_grow_without_bound(store: Store) -> None:
    run, _ = await records.begin(store)
    for _ in range(40):
        await asyncio.gather(*(store.change(write_notice, run.id, "info", "x" * 2000) for _ in range(64)))
        await store.read(lambda connection: connection.execute("SELECT count(*) FROM events").fetchone())
    wal = store.path.with_name(store.path.name + "-wal")
    assert (await asyncio.to_thread(wal.stat)).st_size < 64 << 20


def test_the_writers_lock_ends_with_its_holder(tmp_path: Path) -> None:
    first = WriterLock(tmp_path / "acceld.db")
    with pytest.raises(StoreError, match="another process writes"):
        WriterLock(tmp_path / "acceld.db")
    first.release()
    WriterLock(tmp_path / "acceld.db").release()
