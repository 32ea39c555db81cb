"""No listener misses an event or gets one out of order, while storage fails and recovers in the middle of groups."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acceld.events import Event, Notice, RunCreated
from acceld.store.changes.runs import create_run, write_notice
from acceld.store.database import Store
from acceld.store.reads.records import load_events
from acceld.store.writer import Transaction
from tests.store import records

WRITERS, CHANGES, LISTENERS = 12, 4, 4


class UnsteadyConnection:
    """A connection on which the statements at the given places fail once each, like a disk that is full for a moment."""

    def __init__(self, connection: sqlite3.Connection, failing: set[int]) -> None:
        self._connection, self._failing, self._statements = connection, failing, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        """Fail, or execute the statement."""
        self._statements += 1
        if self._statements in self._failing and sql != "ROLLBACK":
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return self._connection.execute(sql, *values)


def refused(tx: Transaction) -> None:
    """Write an event, then fail: neither may remain."""
    tx.event(Notice(level="info", text="never"), None)
    raise ValueError("refused")


async def write(store: Store, writer: int) -> None:
    """Create runs and notices. Every third change is refused."""
    for number in range(CHANGES):
        await store.change(create_run, records.SPEC)
        await store.change(write_notice, None, "info", f"{writer} {number}")
        with pytest.raises(ValueError, match="refused"):
            await store.change(refused)


async def listen(store: Store, last: asyncio.Event, draw: random.Random) -> list[Event]:
    """Collect every event. Leave and return with the last number at random, as a client whose connection is cut does."""
    heard: list[Event] = []
    while not (last.is_set() and heard and heard[-1].seq == store.hub.last_seq):
        stay = draw.randint(1, 40)
        async for page in store.pages(heard[-1].seq if heard else 0):
            heard += page
            stay -= len(page)
            if stay <= 0 or (last.is_set() and heard[-1].seq == store.hub.last_seq):
                break
    return heard


@settings(max_examples=12, deadline=None, derandomize=True)
@given(failing=st.sets(st.integers(1, 400), max_size=40), seed=st.integers(0, 10**6))
def test_every_listener_hears_every_event_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, failing: set[int], seed: int
) -> None:
    path = tmp_path_factory.mktemp("store") / "acceld.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("acceld.store.writer.RETRY_S", 0.001)
        asyncio.run(check(path, failing, seed))


async def check(path: Path, failing: set[int], seed: int) -> None:
    """Compare what each listener heard with the table of events."""
    store = await asyncio.to_thread(Store.open, path)
    store.writer._connection = UnsteadyConnection(store.writer._connection, failing)  # type: ignore[assignment]
    last = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        listeners = [tasks.create_task(listen(store, last, random.Random(seed + n))) for n in range(LISTENERS)]
        async with asyncio.TaskGroup() as writers:
            for writer in range(WRITERS):
                writers.create_task(write(store, writer))
        await store.change(write_notice, None, "info", "the last one")
        last.set()
        await store.change(write_notice, None, "info", "wakes listeners that wait")
    stored = await store.read(load_events, limit=10_000)
    await store.close()
    for listener in listeners:
        assert [event.seq for event in listener.result()] == [event.seq for event in stored]
    created = {event.run for event in listeners[0].result() if isinstance(event.data, RunCreated)}
    assert len(created) == WRITERS * CHANGES
    assert "never" not in {event.data.text for event in stored if isinstance(event.data, Notice)}


async def test_the_event_of_recovery_follows_those_of_its_group(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acceld.store.writer.RETRY_S", 0.001)
    published: list[int] = []
    publish = store.writer._publish

    def record(events: list[Event]) -> None:
        published.extend(event.seq for event in events)
        publish(events)

    store.writer._publish = record
    store.writer._connection = UnsteadyConnection(store.writer._connection, {2})  # type: ignore[assignment]
    await asyncio.gather(*(store.change(create_run, records.SPEC) for _ in range(5)))
    assert published == sorted(published)
    assert len(published) == 6


async def test_a_gap_in_what_was_published_is_read_from_the_database(store: Store) -> None:
    await store.change(write_notice, None, "info", "published")
    other = sqlite3.connect(store.path)
    with other:
        other.execute(
            "INSERT INTO events (at, kind, data) VALUES (?, 'notice', ?)",
            (time.time(), '{"level": "info", "text": "committed, never published", "hint": ""}'),
        )
    other.close()
    await store.change(write_notice, None, "info", "published later")
    async for page in store.pages(1):
        assert [event.data.text for event in page if isinstance(event.data, Notice)] == [
            "committed, never published",
            "published later",
        ]
        break
