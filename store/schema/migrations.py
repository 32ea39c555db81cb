"""Migrate the database by named functions, applied in order, never edited after a release.

Each runs in one transaction, together with its record and the new ``user_version``. An existing file is copied before
it is changed. A file written by a newer acceld is refused.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from sqlite_utils import Database, Migrations

from acceld.store.connection import APPLICATION_ID, check_version
from acceld.store.schema.tables import HOSTS, SEARCH_INDEXES, TABLES
from acceld.store.schema.views import VIEW_OF_RESULTS, VIEWS, VIEWS_WITH_TIMES

migrations = Migrations("acceld")


def statements(script: str) -> Iterator[str]:
    """Yield the single statements of an SQL script. Triggers keep their inner semicolons."""
    pending = ""
    for line in script.splitlines():
        pending += line + "\n"
        if sqlite3.complete_statement(pending):
            yield pending.strip()
            pending = ""
    if pending.strip():
        raise ValueError(f"unfinished SQL statement: {pending.strip()[:80]!r}")


def _run(db: Database, script: str) -> None:
    for statement in statements(script):
        db.conn.execute(statement)  # one at a time, because executescript would commit


@migrations()
def m001_initial(db: Database) -> None:
    """Create every table, index, full-text index and view of the first release."""
    _run(db, TABLES)
    _run(db, SEARCH_INDEXES)
    _run(db, VIEWS)
    db.conn.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.conn.execute("PRAGMA user_version = 1")


@migrations()
def m002_sent_calls(db: Database) -> None:
    """Add the time of a call's first request, the exit code of a failed run and ISO times in views; rename hot spots.

    Calls of the first release count as sent.
    """
    db.conn.execute("ALTER TABLE runs ADD COLUMN exit_code INTEGER NOT NULL DEFAULT 0")
    db.conn.execute("UPDATE runs SET exit_code = 1 WHERE state = 'failed'")
    db.conn.execute("ALTER TABLE llm_calls ADD COLUMN sent_at REAL")
    db.conn.execute("UPDATE llm_calls SET sent_at = started_at")
    db.conn.execute("""UPDATE profile_details SET details = replace(details, '"dearest_lines":', '"hot_spots":')""")
    _run(db, VIEWS_WITH_TIMES)
    db.conn.execute("PRAGMA user_version = 2")


@migrations()
def m003_hosts(db: Database) -> None:
    """Add the hosts of a fleet, the host of each profile, and what each host cost."""
    for column in ("host", "instance_type", "driver"):
        db.conn.execute(f"ALTER TABLE profiles ADD COLUMN {column} TEXT NOT NULL DEFAULT ''")
    _run(db, HOSTS)
    db.conn.execute("PRAGMA user_version = 3")


@migrations()
def m004_words(db: Database) -> None:
    """Rename stored parameters of the performance model."""
    db.conn.execute(
        """UPDATE profile_details SET details = replace(details, '"deals_copies":', '"alternates_copies":')"""
    )
    db.conn.execute("PRAGMA user_version = 4")


@migrations()
def m005_results(db: Database) -> None:
    """Rename judgements to results: the view of candidates with their evaluations, and the published gate's result."""
    _run(db, VIEW_OF_RESULTS)
    db.conn.execute("ALTER TABLE evaluations RENAME COLUMN accelopt_verdict TO accelopt_passed")
    db.conn.execute("PRAGMA user_version = 5")


@migrations()
def m006_one_tie(db: Database) -> None:
    """Store one percentage for a tie, stated by measured profiles, in place of one percentage for each class of change."""
    db.conn.execute(
        """UPDATE profile_details SET details =
               json_set(details, '$.tie_percent', json_extract(details, '$.prediction.paired_band.mixed'))
           WHERE json_valid(details) AND json_extract(details, '$.prediction.paired_band.mixed') IS NOT NULL
             AND json_extract(details, '$.prediction.paired_band.dma') IS NULL"""
    )
    db.conn.execute(
        """UPDATE profile_details SET details = json_remove(details, '$.prediction.paired_band')
           WHERE json_valid(details) AND json_extract(details, '$.prediction.paired_band') IS NOT NULL"""
    )
    db.conn.execute("PRAGMA user_version = 6")


@migrations()
def m007_partners(db: Database) -> None:
    """Add the second parent of a crossover to plans."""
    db.conn.execute("ALTER TABLE plans ADD COLUMN partner INTEGER REFERENCES candidates(id)")
    db.conn.execute("PRAGMA user_version = 7")


def names() -> list[str]:
    """Return the names of all migrations, in order."""
    return [migration.name for migration in migrations._migrations]


SCHEMA_VERSION = len(names())
"""``user_version`` after every migration."""


def backup_path(path: Path, version: int) -> Path:
    """Return the path for the copy of schema ``version``: beside the database, in ``backups/``."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    folder = path.parent / "backups"
    folder.mkdir(mode=0o700, exist_ok=True)
    place = folder / f"{path.stem}-v{version}-{stamp}.db"
    number = 1
    while place.exists():
        number += 1
        place = folder / f"{path.stem}-v{version}-{stamp}-{number}.db"
    return place


def migrate(connection: sqlite3.Connection, path: Path) -> Path | None:
    """Bring the file to the newest schema. Return the path of the copy made before; None if none was needed."""
    version = check_version(connection, path, SCHEMA_VERSION)
    if version == SCHEMA_VERSION:
        return None
    copy: Path | None = None
    if version > 0:
        copy = backup_path(path, version)
        connection.execute("VACUUM INTO ?", (str(copy),))
        copy.chmod(0o600)
    migrations.apply(Database(connection, execute_plugins=False))
    return copy
