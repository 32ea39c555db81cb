"""Maintain the database file: measure, check, copy and shrink it, and delete old runs."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from acceld.errors import StoreError
from acceld.store.changes.rollups import TOTALS
from acceld.store.connection import WriterLock, connect_reader, connect_writer, damage
from acceld.store.writer import Transaction


def compare_totals(connection: sqlite3.Connection) -> list[str]:
    """Return one message for each stored total that differs from the rows that it counts; empty if all totals
    are right.
    """
    found: list[str] = []
    for total in TOTALS:
        expected, kept = (
            {tuple(row[column] for column in total.key): dict(row) for row in connection.execute(query)}
            for query in (total.query, f"SELECT * FROM {total.table}")
        )
        for key in expected.keys() | kept.keys():
            want, have = expected.get(key), kept.get(key)
            if want is None or have is None:
                found.append(f"{total.table} {key}: {'missing' if have is None else 'not expected'}")
            else:
                found += [
                    f"{total.table} {key}: {column} is {have[column]}, not {value}"
                    for column, value in want.items()
                    if have[column] != value
                ]
    return found


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Result of ``acceld doctor database``: the problems found, the number of rows by table, the size, and the
    duration of the check.
    """

    problems: tuple[str, ...]
    rows: dict[str, int]
    bytes: int
    seconds: float


def check(path: Path, quick: bool = False) -> CheckReport:
    """Check a database: its integrity, the references between tables, the totals, and that no event is missing.

    ``quick`` leaves out SQLite's comparison of tables with their indexes. Raise StoreError if there is no
    database.
    """
    started = time.monotonic()
    connection = connect_reader(path)
    try:
        pragma = "quick_check" if quick else "integrity_check"
        problems = [row[0] for row in connection.execute(f"PRAGMA {pragma}") if row[0] != "ok"]
        problems += [
            f"{row[0]} row {row[1]} refers to a row of {row[2]} that is not there"
            for row in connection.execute("PRAGMA foreign_key_check")
        ]
        count, first, last = connection.execute("SELECT count(*), min(seq), max(seq) FROM events").fetchone()
        if count and last - first + 1 != count:
            problems.append(f"{last - first + 1 - count} events are missing between {first} and {last}")
        problems += compare_totals(connection)
        problems += [
            f"source {row[0][:12]} has no text"
            for row in connection.execute(
                "SELECT s.sha256 FROM sources s LEFT JOIN texts t ON t.sha256 = s.text_sha256 WHERE t.sha256 IS NULL"
            )
        ]
        counted = {
            name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
            for name in ("runs", "candidates", "evaluations", "llm_calls", "insights", "events")
        }
    except sqlite3.DatabaseError as error:
        problems, counted = [str(error)], {}
    finally:
        connection.close()
    return CheckReport(tuple(problems), counted, size_bytes(path), time.monotonic() - started)


def size_bytes(path: Path) -> int:
    """Return the size in bytes of the database with its write-ahead log."""
    return sum(part.stat().st_size for part in (path, path.with_name(path.name + "-wal")) if part.exists())


def backup(path: Path, target: Path) -> int:
    """Write a consistent, checked copy of the database to ``target``, and return the size of the copy in bytes.

    The daemon may write at the same time. Raise StoreError if ``target`` exists, because a backup overwrites
    nothing.
    """
    if target.exists():
        raise StoreError(f"{target} exists already", hint="Name another file, because a backup overwrites nothing.")
    with _copy(path, target.with_name(target.name + ".part")) as part:
        _rename(part, target)
    return target.stat().st_size


def restore(path: Path, copy: Path) -> Path | None:
    """Replace a database by ``copy``. Return the folder with the replaced files; None if there was no database.

    The write-ahead log of a killed daemon belongs to the replaced database and would damage the copy, so it is
    moved, too. Raise StoreError if the copy is incomplete or if a daemon has the database open.
    """
    problems = check(copy).problems
    if problems:
        hint = f"Other copies may be in {path.parent / 'backups'}."
        raise StoreError(f"{copy} is not a complete copy: {problems[0].splitlines()[-1]}", hint=hint)
    lock = WriterLock(path)
    try:
        with _copy(copy, path.with_name(path.name + ".part")) as part:
            aside = _put_aside(path)
            _rename(part, path)
    finally:
        lock.release()
    return aside


@contextlib.contextmanager
def _copy(path: Path, part: Path) -> Iterator[Path]:
    """Copy a database to the file ``part``, check the copy, and yield ``part``.

    The file is deleted after the ``with`` block, unless the block has renamed it.
    """
    hint = "Check the free space and the permissions of the folder."
    connection = connect_reader(path)
    try:
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        copy = sqlite3.connect(part)
        try:
            connection.backup(copy, pages=-1)  # one step: a copy in steps starts again with every commit
            # without a write-ahead log, SQLite can open the copy in a read-only folder
            copy.execute("PRAGMA journal_mode = DELETE")
            found = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
        finally:
            copy.close()
        if found != "ok":
            raise StoreError(
                f"{path} is damaged, so it was not copied: {found.splitlines()[-1]}",
                hint="Replace the database by an older copy: acceld db restore FILE.",
            )
        yield part
    except sqlite3.Error as error:
        raise damage(path, error) or StoreError(f"can not copy {path} to {part.parent}: {error}", hint=hint) from error
    except OSError as error:
        raise StoreError(f"can not copy {path} to {part.parent}: {error.strerror}", hint=hint) from error
    finally:
        connection.close()
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _put_aside(path: Path) -> Path | None:
    """Link the present database into a new folder, and move its write-ahead log there. Return the folder.

    The database also stays at ``path``. Return None if there is no database.
    """
    parts = [one for one in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))) if one.exists()]
    if not parts:
        return None
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    folder = path.parent / "backups" / f"replaced-{stamp}"
    folder.mkdir(0o700, parents=True)
    for one in parts:
        os.link(one, folder / one.name)
    for one in parts:
        if one != path:
            one.unlink()
    return folder


def _rename(part: Path, target: Path) -> None:
    """Rename a file so that the rename survives a power cut: sync its content before, and its folder after it."""
    _sync(part)
    part.rename(target)
    _sync(target.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def vacuum(path: Path) -> None:
    """Return the unused pages of the database file to the file system.

    Raise StoreError if a daemon has the database open, or if there is too little free space.
    """
    lock = WriterLock(path)
    try:
        connection = connect_writer(path)
        try:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise StoreError(
            f"can not vacuum {path}: {error}", hint="Free disk space of at least the size of this file, then try again."
        ) from error
    finally:
        lock.release()


def old_runs(path: Path, ended_before: float) -> dict[str, int]:
    """Return how many ``runs`` and ``candidates`` :func:`forget_runs` would delete.

    ``ended_before`` is in seconds since the epoch.
    """
    connection = connect_reader(path)
    try:
        runs, candidates = connection.execute(
            "SELECT count(DISTINCT r.id), count(c.id) FROM runs r LEFT JOIN candidates c ON c.run = r.id "
            "WHERE r.ended_at IS NOT NULL AND r.ended_at < ?",
            (ended_before,),
        ).fetchone()
    finally:
        connection.close()
    return {"runs": runs, "candidates": candidates}


def forget_runs(tx: Transaction, ended_before: float) -> dict[str, int]:
    """Delete the runs that ended before ``ended_before`` (seconds since the epoch), and return the numbers of
    deleted rows.

    Insights are kept.
    """
    tx.execute("PRAGMA defer_foreign_keys = ON")
    old = [
        row["id"]
        for row in tx.execute("SELECT id FROM runs WHERE ended_at IS NOT NULL AND ended_at < ?", (ended_before,))
    ]
    if not old:
        return {"runs": 0, "candidates": 0, "evaluations": 0, "texts": 0}
    candidates = sum(_forget(tx, run) for run in old)
    evaluations = tx.execute(
        "DELETE FROM evaluations WHERE id NOT IN (SELECT evaluation FROM candidates WHERE evaluation IS NOT NULL)"
    ).rowcount
    tx.execute(
        "DELETE FROM sources WHERE sha256 NOT IN (SELECT source FROM candidates) "
        "AND sha256 NOT IN (SELECT root_sha256 FROM runs WHERE root_sha256 IS NOT NULL)"
    )
    texts = tx.execute(
        "DELETE FROM texts WHERE sha256 NOT IN (SELECT text_sha256 FROM sources) "
        "AND sha256 NOT IN (SELECT text_sha256 FROM attempts WHERE text_sha256 IS NOT NULL) "
        "AND sha256 NOT IN (SELECT system_sha256 FROM llm_calls) AND sha256 NOT IN (SELECT user_sha256 FROM llm_calls) "
        "AND sha256 NOT IN (SELECT value FROM sources, json_each(sources.closure))"
    ).rowcount
    rebuild_totals(tx)
    return {"runs": len(old), "candidates": candidates, "evaluations": evaluations, "texts": texts}


def _forget(tx: Transaction, run: int) -> int:
    tx.execute("UPDATE runs SET baseline = NULL, best = NULL WHERE id = ?", (run,))
    tx.execute("DELETE FROM beams WHERE run = ?", (run,))
    tx.execute("DELETE FROM iterations WHERE run = ?", (run,))
    tx.execute("DELETE FROM insight_uses WHERE run = ?", (run,))
    gone = tx.execute("DELETE FROM candidates WHERE run = ?", (run,)).rowcount
    tx.execute("DELETE FROM attempts WHERE plan IN (SELECT id FROM plans WHERE run = ?)", (run,))
    tx.execute("DELETE FROM plans WHERE run = ?", (run,))
    tx.execute("DELETE FROM llm_calls WHERE run = ?", (run,))
    tx.execute("DELETE FROM runs WHERE id = ?", (run,))
    return gone


def rebuild_totals(tx: Transaction) -> None:
    """Compute every stored total again from the rows that it counts."""
    for total in TOTALS:
        rows = [dict(row) for row in tx.execute(total.query)]
        if total.table != "run_totals":
            tx.execute(f"DELETE FROM {total.table}")
            for row in rows:
                tx.insert(total.table, row)
            continue
        for row in rows:  # updated and not inserted again: the row of a run also has counts that no query computes
            values = {name: value for name, value in row.items() if name != "run"}
            sets = ", ".join(f"{name} = ?" for name in values)
            tx.execute(f"UPDATE run_totals SET {sets} WHERE run = ?", (*values.values(), row["run"]))
