"""Old runs go whole, what others share stays, damage is found, copies do not overwrite."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path

import pytest

from acceld.errors import DeadlineError, StoreError, UsageError
from acceld.store.changes.runs import write_notice
from acceld.store.connection import NEWEST_SCHEMA, connect_reader
from acceld.store.database import Store
from acceld.store.maintenance import backup, check, compare_totals, forget_runs, old_runs, restore, vacuum
from acceld.store.reads import history, listing
from acceld.store.reads.records import load_candidates, load_insights, load_runs
from acceld.store.schema.migrations import SCHEMA_VERSION
from acceld.store.writer import Transaction
from tests.faults.harness import kill_writers
from tests.store import records


async def test_old_runs_are_forgotten_and_insights_kept(store: Store) -> None:
    await records.small_run(store)
    going_on, _ = await records.begin(store)
    now = time.time() + 1
    assert await asyncio.to_thread(old_runs, store.path, now) == {"runs": 1, "candidates": 3}
    counts = await store.change(forget_runs, now)
    assert (counts["runs"], counts["candidates"]) == (1, 3)
    assert [run.id for run in await store.read(load_runs)] == [going_on.id]
    assert len(await store.read(load_insights)) == 1
    assert len(await store.read(load_candidates, going_on.id)) == 1
    assert await store.read(compare_totals) == []
    assert (await asyncio.to_thread(check, store.path)).problems == ()
    assert (await store.change(forget_runs, now))["runs"] == 0


async def test_vacuum_gives_space_back_and_only_without_a_writer(store: Store) -> None:
    with pytest.raises(StoreError, match="another process writes"):
        await asyncio.to_thread(vacuum, store.path)


def test_vacuum_shrinks_the_file(tmp_path: Path) -> None:
    path = tmp_path / "acceld.db"

    async def fill() -> None:
        store = await asyncio.to_thread(Store.open, path)
        for _ in range(5):
            await records.small_run(store)
        await store.change(forget_runs, time.time() + 1)
        await store.close()

    asyncio.run(fill())
    before = path.stat().st_size
    vacuum(path)
    assert path.stat().st_size <= before
    assert check(path).problems == ()


async def test_a_total_that_is_wrong_is_found(store: Store) -> None:
    await records.small_run(store)
    await store.change(lambda tx: tx.execute("UPDATE run_totals SET wins = 7"))
    assert await store.read(compare_totals) == ["run_totals (1,): wins is 7, not 0"]


async def test_damage_and_missing_events_are_found(tmp_path: Path) -> None:
    path = tmp_path / "acceld.db"
    store = await asyncio.to_thread(Store.open, path)
    await records.small_run(store)
    await store.change(lambda tx: tx.execute("DELETE FROM events WHERE seq = 4"))
    await store.close()
    assert "1 events are missing between 1 and" in (await asyncio.to_thread(check, path)).problems[0]
    raw = bytearray(await asyncio.to_thread(path.read_bytes))
    raw[8192:40960] = bytes(32768)
    await asyncio.to_thread(path.write_bytes, raw)
    assert (await asyncio.to_thread(check, path)).problems


async def test_a_copy_never_overwrites(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    assert await asyncio.to_thread(backup, store.path, target) > 0
    with pytest.raises(StoreError, match="exists"):
        await asyncio.to_thread(backup, store.path, target)
    with pytest.raises(StoreError, match="can not copy"):
        await asyncio.to_thread(backup, store.path, tmp_path / "nowhere" / "copy.db")


async def test_a_copy_is_private_checked_and_one_file(store: Store, tmp_path: Path) -> None:
    await records.small_run(store)
    target = tmp_path / "elsewhere" / "copy.db"
    await asyncio.to_thread(target.parent.mkdir)
    await asyncio.to_thread(backup, store.path, target)
    assert (await asyncio.to_thread(check, target)).problems == ()
    assert [(one.name, one.stat().st_mode & 0o777) for one in target.parent.iterdir()] == [("copy.db", 0o600)]


def filled(path: Path) -> None:
    """Write a closed database with one run."""

    async def fill() -> None:
        store = await asyncio.to_thread(Store.open, path)
        await records.small_run(store)
        await store.close()

    asyncio.run(fill())


def test_a_damaged_history_is_named_by_whoever_meets_it_and_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "acceld.db"
    filled(path)
    with sqlite3.connect(path) as plain:
        place = plain.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'candidates'").fetchone()[0]
    plain.close()
    raw = bytearray(path.read_bytes())
    raw[4096 * (place - 1) : 4096 * (place - 1) + 64] = b"\xa5" * 64
    path.write_bytes(raw)
    with pytest.raises(StoreError, match=r"acceld\.db is damaged, so it was not copied"):
        backup(path, tmp_path / "copy.db")
    assert sorted(one.name for one in tmp_path.glob("copy*")) == []

    async def meet() -> None:
        store = await asyncio.to_thread(Store.open, path)
        for work in (
            store.read(load_candidates, 1),
            store.change(lambda tx: tx.execute("UPDATE candidates SET iteration = 0")),
        ):
            with pytest.raises(StoreError, match=r"acceld\.db is damaged") as found:
                await work
            assert "acceld db restore FILE" in found.value.hint
        await store.close()

    asyncio.run(meet())


def test_a_restored_copy_is_not_damaged_by_the_log_of_a_killed_daemon(tmp_path: Path) -> None:
    path, copy = tmp_path / "acceld.db", tmp_path / "copy.db"
    filled(path)
    backup(path, copy)
    kept = copy.read_bytes()
    kill_writers(tmp_path, 1)
    log = path.with_name("acceld.db-wal")
    assert log.stat().st_size
    killed = (path.read_bytes(), log.read_bytes())
    aside = restore(path, copy)
    assert aside is not None
    assert ((aside / path.name).read_bytes(), (aside / log.name).read_bytes()) == killed
    assert not log.exists() and check(path).problems == ()
    assert check(path).rows["runs"] == 1 and path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(killed[0])
    log.write_bytes(killed[1])
    path.write_bytes(kept)  # what a person does who does not know of the log
    if check(path, quick=True).problems:
        with pytest.raises(StoreError, match="is damaged"):
            Store.open(path)
    copy.write_bytes(kept[:8192])
    with pytest.raises(StoreError, match=r"copy\.db is (damaged|not whole)"):
        restore(path, copy)


def test_an_emptied_file_beside_copies_begins_no_new_history(tmp_path: Path) -> None:
    path = tmp_path / "acceld.db"
    filled(path)
    (tmp_path / "backups").mkdir()
    backup(path, tmp_path / "backups" / "copy.db")
    path.write_bytes(b"")
    for use in (Store.open, check):
        with pytest.raises(StoreError, match="is empty, and there are copies of it"):
            use(path)
    assert restore(path, tmp_path / "backups" / "copy.db") is not None
    assert check(path).rows["runs"] == 1


def test_a_log_that_was_deleted_after_a_kill_hides_no_loss(tmp_path: Path) -> None:
    path = tmp_path / "acceld.db"
    kill_writers(tmp_path, 1)
    log, index = (path.with_name(f"acceld.db-{end}") for end in ("wal", "shm"))
    log.unlink()
    for use in (Store.open, vacuum, connect_reader, check, Store.open):
        with pytest.raises(StoreError, match=r"acceld\.db-wal was deleted after a daemon was killed") as found:
            use(path)
        assert "acceld db restore FILE" in found.value.hint and str(index) in found.value.hint
    index.unlink()  # what the advice says
    assert connect_reader(path).execute("PRAGMA user_version").fetchone()[0] == NEWEST_SCHEMA, "no new, empty file"


def test_a_log_that_was_deleted_under_a_daemon_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "acceld.db"
    asyncio.run(records.fill(path))
    opened = Store.open(path)
    opened.close_now()
    before = check(path).rows["events"]

    async def write() -> None:
        store = await asyncio.to_thread(Store.open, path)
        await store.change(write_notice, None, "info", "before")
        path.with_name("acceld.db-wal").unlink()
        await store.change(write_notice, None, "info", "after")
        for use in (connect_reader, check):
            with pytest.raises(StoreError, match="was deleted while a daemon uses") as found:
                use(path)
            assert "acceld stop" in found.value.hint
        await store.close()

    asyncio.run(write())
    assert check(path).rows["events"] == before + 2 and not check(path).problems


def test_a_database_that_is_a_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "acceld.db"
    path.mkdir()
    for use in (Store.open, connect_reader, vacuum, check):
        with pytest.raises(StoreError, match=r"acceld\.db is a folder") as found:
            use(path)
        assert "--home DIR" in found.value.hint


def test_readers_refuse_what_they_can_not_read(tmp_path: Path) -> None:
    for number, (sql, said) in enumerate(
        [
            ("PRAGMA user_version = 99", "schema version 99"),
            ("CREATE TABLE t (x)", "holds no history"),
            ("CREATE TABLE t (x); PRAGMA application_id = 7", "of another program"),
        ]
    ):
        path = tmp_path / f"{number}.db"
        with sqlite3.connect(path) as plain:
            plain.executescript(sql)
        plain.close()
        with pytest.raises(StoreError, match=said):
            connect_reader(path)


def test_the_schema_that_readers_know_is_the_newest() -> None:
    assert NEWEST_SCHEMA == SCHEMA_VERSION


async def test_a_rewrite_inside_the_tie_is_a_win_of_no_query(store: Store) -> None:
    await records.small_run(store, best_us=99.92)
    rules = await store.read(history.saved, "rules")
    assert rules.rows[0][rules.columns.index("wins")] == 0
    best = await store.read(history.saved, "best")
    assert best.rows[0][best.columns.index("improved")] == 0
    for sql in ("SELECT wins, improved FROM history", "SELECT improved, 0 FROM rewrites WHERE speedup > 1"):
        assert (await store.read(history.query, sql)).rows == [(0, 0)]


async def test_a_rule_whose_candidates_were_only_timed_has_no_rate_of_wins(store: Store) -> None:
    def add(tx: Transaction) -> None:
        tx.execute("INSERT INTO rule_totals VALUES ('timed', 'silu', 5, 0, 0), ('tried', 'silu', 4, 3, 1)")

    await store.change(add)
    found = await store.read(history.saved, "rules")
    rate = found.columns.index("win_rate")
    assert {row[0]: row[rate] for row in found.rows} == {"timed": None, "tried": 0.25}


async def test_saved_queries_tell_of_a_finished_run(store: Store) -> None:
    await records.small_run(store, best_us=50.0)
    best = await store.read(history.saved, "best")
    assert best.rows[0][best.columns.index("speedup")] == 2.0
    wins = await store.read(history.saved, "cost-per-win")
    assert wins.rows[0][wins.columns.index("usd_per_win")] == pytest.approx(0.0125)
    failures = await store.read(history.saved, "failures")
    assert failures.rows[0][:3] == ("compile_error", "moving_free_limit", 1)
    for name in history.SAVED:
        assert (await store.read(history.saved, name)).columns
    with pytest.raises(UsageError, match="Did you mean 'failures'"):
        await store.read(history.saved, "failure")


async def test_flaky_work_is_reported(store: Store) -> None:
    _, baseline = await records.begin(store)
    child = await records.child_of(store, baseline, 0)
    await records.evaluate(store, child, records.passed(80.0))
    await records.evaluate(store, child, records.failed())
    flaky = await store.read(history.saved, "flaky")
    assert [(row[3], row[4]) for row in flaky.rows] == [(2, 1)]
    assert await store.read(compare_totals) == []


async def test_runs_are_asked_for_by_condition(store: Store) -> None:
    await records.small_run(store)
    await records.begin(store)
    found = await store.read(
        history.run_query, where="speedup > 1.2 and cost_usd < 3", workload="silu", sort="-speedup"
    )
    assert [row[0] for row in found.rows] == [1]
    assert len((await store.read(history.run_query)).rows) == 2
    assert (await store.read(history.run_query, model="small")).rows[0][0] == 1
    with pytest.raises(UsageError, match="no such column"):
        await store.read(history.run_query, where="sped > 1")
    with pytest.raises(UsageError, match="no such column") as caught:
        await store.read(history.run_query, where="sha256 > 1")
    assert "'sha256' is a column of " in caught.value.hint or "'sha256' is a column of " in str(caught.value)
    assert "Did you mean" not in str(caught.value)
    with pytest.raises(UsageError, match="can not sort"):
        await store.read(history.run_query, sort="1; DROP TABLE runs")


async def test_queries_end_in_time_and_leave_the_connection_usable(store: Store) -> None:
    connection = await asyncio.to_thread(connect_reader, store.path)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    with pytest.raises(DeadlineError):
        await asyncio.to_thread(history.query, connection, endless, time_limit_s=0.1)
    assert (await asyncio.to_thread(history.query, connection, "SELECT 1")).rows == [(1,)]
    connection.close()


async def test_runs_are_paged_and_filtered(store: Store) -> None:
    await records.small_run(store)
    await records.begin(store)
    rows = await store.read(listing.run_rows, state="running")
    assert [row["id"] for row in rows] == [2]
    assert [row["id"] for row in await store.read(listing.run_rows, sort="speedup")] == [1, 2]
    assert [row["id"] for row in await store.read(listing.run_rows, limit=1, offset=1)] == [1]


def test_a_database_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no database"):
        check(tmp_path / "acceld.db")


async def test_the_file_opens_read_only_in_plain_sqlite(store: Store) -> None:
    await records.small_run(store)

    def look() -> int:
        plain = sqlite3.connect(f"file:{store.path}?mode=ro", uri=True)
        try:
            return len(plain.execute("SELECT * FROM history").fetchall())
        finally:
            plain.close()

    assert await asyncio.to_thread(look) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "ATTACH '{folder}/other.db' AS other",
        "VACUUM INTO '{folder}/other.db'",
        "CREATE TEMP TABLE t AS SELECT 1",
        "PRAGMA user_version = 7",
        "PRAGMA query_only = OFF",
        "PRAGMA writable_schema = ON",
        "DELETE FROM runs RETURNING id",
        "INSERT INTO plans_search(plans_search) VALUES ('rebuild')",
        "BEGIN",
        "SELECT load_extension('{folder}/other.so')",
        "SELECT randomblob(10)",
        "SELECT zeroblob(1000000000)",
        "SELECT length(replace(hex(printf('%.*c', 4000000, 'x')), '7', printf('%.*c', 1000, 'y')))",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 500) SELECT printf('%.*c', 1000000, i) FROM n",
        "SELECT fts3_tokenizer('simple')",
        "SELECT writefile('{folder}/other', 'x')",
    ],
)
async def test_sql_can_neither_write_nor_open_other_files(store: Store, sql: str) -> None:
    await records.small_run(store)
    folder = store.path.parent
    before = {path.name for path in await asyncio.to_thread(lambda: list(folder.iterdir()))}
    with pytest.raises(UsageError):
        await store.read(history.query, sql.format(folder=folder))
    assert {path.name for path in await asyncio.to_thread(lambda: list(folder.iterdir()))} == before
    assert (await store.read(history.query, "PRAGMA table_info(runs)")).rows
    assert (await store.read(history.query, "SELECT rowid FROM plans_search WHERE plans_search MATCH 'tiles'")).rows
    assert (await store.read(history.query, "WITH a AS (SELECT * FROM history) SELECT count(*) FROM a")).rows == [(1,)]
