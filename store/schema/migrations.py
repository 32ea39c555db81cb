"""Migrate the database by functions that are applied in order. No migration is edited after a release.

Each migration runs in one transaction, which also records its name and the new ``user_version``. An existing file is
copied before it is changed. A file that a newer acceld wrote is refused.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from acceld.store.connection import APPLICATION_ID, check_version
from acceld.store.schema.tables import HOSTS, SEARCH_INDEXES, TABLES
from acceld.store.schema.views import VIEW_OF_RESULTS, VIEWS, VIEWS_OF_WINS, VIEWS_WITH_TIMES

if TYPE_CHECKING:
    from sqlite_utils import Database, Migrations

Change = Callable[["Database"], None]
_CHANGES: list[Change] = []


def migration(change: Change) -> Change:
    """Add ``change`` to the list of migrations, behind all earlier migrations."""
    _CHANGES.append(change)
    return change


def statements(script: str) -> Iterator[str]:
    """Yield the statements of an SQL script one by one. The semicolons inside a trigger do not end a statement.

    Raise ValueError if the last statement is unfinished.
    """
    pending = ""
    for line in script.splitlines():
        pending += line + "\n"
        if sqlite3.complete_statement(pending):
            yield pending.strip()
            pending = ""
    if pending.strip():
        raise ValueError(
            f"the migration ends inside an SQL statement, which needs a semicolon: {pending.strip()[:80]!r}"
        )


def _run(db: Database, script: str) -> None:
    for statement in statements(script):
        db.conn.execute(statement)  # one at a time, because executescript would commit


@migration
def m001_initial(db: Database) -> None:
    """Create every table, index, full-text index and view of the first release."""
    _run(db, TABLES)
    _run(db, SEARCH_INDEXES)
    _run(db, VIEWS)
    db.conn.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.conn.execute("PRAGMA user_version = 1")


@migration
def m002_sent_calls(db: Database) -> None:
    """Add columns for the time of a call's first request and for the exit code of a failed run.

    Times in views become ISO 8601 texts, and ``dearest_lines`` become ``hot_spots``. Calls of the first release
    count as sent.
    """
    db.conn.execute("ALTER TABLE runs ADD COLUMN exit_code INTEGER NOT NULL DEFAULT 0")
    db.conn.execute("UPDATE runs SET exit_code = 1 WHERE state = 'failed'")
    db.conn.execute("ALTER TABLE llm_calls ADD COLUMN sent_at REAL")
    db.conn.execute("UPDATE llm_calls SET sent_at = started_at")
    db.conn.execute("""UPDATE profile_details SET details = replace(details, '"dearest_lines":', '"hot_spots":')""")
    _run(db, VIEWS_WITH_TIMES)
    db.conn.execute("PRAGMA user_version = 2")


@migration
def m003_hosts(db: Database) -> None:
    """Add the hosts of a fleet, the host of each profile, and what each host cost."""
    for column in ("host", "instance_type", "driver"):
        db.conn.execute(f"ALTER TABLE profiles ADD COLUMN {column} TEXT NOT NULL DEFAULT ''")
    _run(db, HOSTS)
    db.conn.execute("PRAGMA user_version = 3")


@migration
def m004_words(db: Database) -> None:
    """Rename stored parameters of the performance model."""
    db.conn.execute(
        """UPDATE profile_details SET details = replace(details, '"deals_copies":', '"alternates_copies":')"""
    )
    db.conn.execute("PRAGMA user_version = 4")


@migration
def m005_results(db: Database) -> None:
    """Rename the view ``verdicts`` to ``results``, and the column ``accelopt_verdict`` to ``accelopt_passed``."""
    _run(db, VIEW_OF_RESULTS)
    db.conn.execute("ALTER TABLE evaluations RENAME COLUMN accelopt_verdict TO accelopt_passed")
    db.conn.execute("PRAGMA user_version = 5")


@migration
def m006_one_tie(db: Database) -> None:
    """Store one percentage below which kernels are a tie, in place of one percentage for each class of change.

    Only measured profiles have it.
    """
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


@migration
def m007_partners(db: Database) -> None:
    """Add the second parent of a crossover to plans."""
    db.conn.execute("ALTER TABLE plans ADD COLUMN partner INTEGER REFERENCES candidates(id)")
    db.conn.execute("PRAGMA user_version = 7")


@migration
def m008_wins(db: Database) -> None:
    """Add the basis of each run, the performance model of each profile, and which speed-ups are wins.

    The basis is what a run's latencies depend on. Profiles get the version of the performance model from their
    evaluation's key. Wins of earlier runs are decided by the rule of this version; a speed-up between
    predictions of two different models is no win.
    """
    db.conn.execute("ALTER TABLE profiles ADD COLUMN model TEXT NOT NULL DEFAULT ''")
    for table in ("candidates", "runs"):
        db.conn.execute(f"ALTER TABLE {table} ADD COLUMN improved INTEGER")
        db.conn.execute(f"ALTER TABLE {table} ADD COLUMN tie_band REAL")
    db.conn.execute("ALTER TABLE candidates ADD COLUMN parent_improved INTEGER")
    db.conn.execute("ALTER TABLE runs ADD COLUMN basis TEXT NOT NULL DEFAULT '{}'")
    db.conn.execute("ALTER TABLE runs ADD COLUMN timed_again TEXT NOT NULL DEFAULT ''")
    _run(db, VIEWS_OF_WINS)
    db.conn.create_function("model_of_key", 2, _model_of_key, deterministic=True)
    db.conn.create_function("hash_of_key", 2, _hash_of_key, deterministic=True)
    db.conn.create_function("won_interleaved", 2, _won_interleaved, deterministic=True)
    db.conn.execute(
        "UPDATE profiles SET model = (SELECT model_of_key(e.workload, e.key) FROM evaluations e WHERE e.id = evaluation) "
        "WHERE source = 'simulated'"
    )
    db.conn.execute(
        "UPDATE runs SET basis = coalesce((SELECT json_object('workload', hash_of_key(e.workload, e.key), 'model', f.model, "
        "'sdk', CASE WHEN f.source = 'measured' THEN f.sdk ELSE '' END, 'driver', f.driver, 'chip', runs.chip) "
        "FROM candidates c JOIN evaluations e ON e.id = c.evaluation JOIN profiles f ON f.evaluation = e.id "
        "WHERE c.id = runs.baseline), '{}')"
    )
    for column, other in (("improved", "r.baseline"), ("parent_improved", "c.parent")):
        db.conn.execute(
            f"""UPDATE candidates SET {column} = won.improved FROM (
                SELECT c.id AS id, c.status = 'passed' AND b.status = 'passed' AND f.source = g.source AND CASE
                    WHEN f.source = 'simulated' THEN f.model = g.model AND f.interval_percent IS NOT NULL
                        AND g.interval_percent IS NOT NULL AND b.latency_us > 1.34 * c.latency_us
                    ELSE ifnull(won_interleaved(d.details, b.source), b.latency_us > c.latency_us * (1 +
                        max(json_extract(d.details, '$.tie_percent'), json_extract(o.details, '$.tie_percent')) / 100.0))
                    END AS improved
                FROM candidates c JOIN runs r ON r.id = c.run JOIN candidates b ON b.id = {other}
                JOIN profiles f ON f.evaluation = c.evaluation JOIN profiles g ON g.evaluation = b.evaluation
                LEFT JOIN profile_details d ON d.evaluation = c.evaluation AND f.source = 'measured'
                LEFT JOIN profile_details o ON o.evaluation = b.evaluation AND g.source = 'measured'
                WHERE b.id <> c.id AND c.latency_us > 0 AND b.latency_us > 0
            ) AS won WHERE won.id = candidates.id"""
        )
    db.conn.execute(
        "UPDATE candidates SET improved = CASE WHEN speedup IS NOT NULL THEN ifnull(improved, 0) END, "
        "parent_improved = CASE WHEN parent_speedup IS NOT NULL THEN ifnull(parent_improved, 0) END"
    )
    # A measured best won each step from the baseline, although it was not timed beside it.
    db.conn.execute(
        """WITH RECURSIVE line(run, best, parent, won) AS (
            SELECT r.id, r.best, c.parent, c.parent_improved FROM runs r JOIN candidates c ON c.id = r.best
                JOIN profiles f ON f.evaluation = c.evaluation WHERE f.source = 'measured' AND NOT c.improved
            UNION ALL SELECT line.run, line.best, c.parent, line.won AND (c.parent IS NULL OR c.parent_improved)
                FROM line JOIN candidates c ON c.id = line.parent)
        UPDATE candidates SET improved = 1 WHERE id IN (SELECT best FROM line WHERE parent IS NULL AND won)"""
    )
    db.conn.execute(
        "UPDATE candidates SET tie_band = 34.0 FROM profiles f, runs r JOIN candidates b ON b.id = r.baseline "
        "JOIN profiles g ON g.evaluation = b.evaluation WHERE f.evaluation = candidates.evaluation AND r.id = candidates.run "
        "AND candidates.latency_us > 0 AND f.source = 'simulated' AND g.source = 'simulated' AND f.model = g.model "
        "AND f.interval_percent IS NOT NULL AND g.interval_percent IS NOT NULL"
    )
    db.conn.execute(
        "UPDATE candidates SET tie_band = (SELECT json_extract(d.details, '$.tie_percent') FROM profile_details d "
        "WHERE d.evaluation = candidates.evaluation) WHERE evaluation IN (SELECT evaluation FROM profiles WHERE source = 'measured')"
    )
    db.conn.execute(
        "UPDATE runs SET improved = c.improved, tie_band = c.tie_band FROM candidates c WHERE c.id = runs.best"
    )
    won = "SELECT count(*) FROM candidates c WHERE c.status = 'passed' AND c.parent_improved"
    db.conn.execute(f"UPDATE run_totals SET wins = ({won} AND c.run = run_totals.run)")
    db.conn.execute(
        "UPDATE rule_totals SET wins = (SELECT count(*) FROM candidates c JOIN plans p ON p.id = c.plan JOIN runs r ON r.id = c.run "
        "WHERE c.status = 'passed' AND c.parent_improved AND p.rule = rule_totals.rule AND r.workload = rule_totals.workload)"
    )
    db.conn.execute("PRAGMA user_version = 8")


@migration
def m009_memory(db: Database) -> None:
    """Add the uncertain cost of a call, and for insights the class of change, the operations and where their
    rewrites won.
    """
    db.conn.execute("ALTER TABLE llm_calls ADD COLUMN uncertain_usd REAL NOT NULL DEFAULT 0")
    db.conn.execute("ALTER TABLE insights ADD COLUMN change TEXT NOT NULL DEFAULT ''")
    db.conn.execute("ALTER TABLE insights ADD COLUMN operations TEXT NOT NULL DEFAULT '[]'")
    db.conn.execute("ALTER TABLE insights ADD COLUMN held TEXT NOT NULL DEFAULT '[]'")
    db.conn.execute("ALTER TABLE insights ADD COLUMN tie_percent REAL")
    db.conn.execute("PRAGMA user_version = 9")


@migration
def m010_expected_costs(db: Database) -> None:
    """Move the expected cost of a call from its JSON parameters to a column."""
    db.conn.execute("ALTER TABLE llm_calls ADD COLUMN expected_usd REAL")
    db.conn.execute(
        "UPDATE llm_calls SET expected_usd = json_extract(parameters, '$.expected_usd'), "
        "parameters = json_remove(parameters, '$.expected_usd') WHERE json_valid(parameters)"
    )
    db.conn.execute("PRAGMA user_version = 10")


def _context_of_key(workload: str, key: str) -> str:
    """Return the part of an evaluation's key that names versions; empty if the key has no such part."""
    return key.removeprefix(f"{workload}/").partition("/")[0]


def _model_of_key(workload: str, key: str) -> str:
    found = re.search(r"\.m(\d+(?:\.c[^/]*)?)", _context_of_key(workload, key))
    return found[1] if found else ""


def _hash_of_key(workload: str, key: str) -> str:
    found = re.match(r"[0-9a-f]{12}(?=\.m)", _context_of_key(workload, key))
    return found[0] if found else ""


def _won_interleaved(details: str | None, against: str) -> int | None:
    """Return 1 if a kernel won when it was timed interleaved with the kernel ``against``, and 0 if it did not
    win.

    Return None if the two kernels were not timed together.
    """
    pairs = (json.loads(details) if details else {}).get("paired") or ()
    return next((int(pair["win"]) for pair in pairs if pair["against"] == against), None)


def names() -> list[str]:
    """Return the names of all migrations, in order."""
    return [change.__name__ for change in _CHANGES]


def collected() -> Migrations:
    """Return all migrations in the form that sqlite-utils applies and records."""
    from sqlite_utils import Migrations

    migrations = Migrations("acceld")
    for change in _CHANGES:
        migrations(name=change.__name__)(change)
    return migrations


SCHEMA_VERSION = len(names())
"""``user_version`` after every migration."""


def backup_path(path: Path, version: int) -> Path:
    """Return a free path in ``backups/`` beside the database, for a copy of schema ``version``. Makes the folder."""
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
    """Bring the database to the newest schema.

    Return the path of the copy that was made before; None if the file was new or needed no migration.
    """
    version = check_version(connection, path, SCHEMA_VERSION)
    if version == SCHEMA_VERSION:
        return None
    copy: Path | None = None
    if version > 0:
        copy = backup_path(path, version)
        connection.execute("VACUUM INTO ?", (str(copy),))
        copy.chmod(0o600)
    from sqlite_utils import Database  # imported here, because most starts have nothing to migrate

    collected().apply(Database(connection, execute_plugins=False))
    # The tables are moved from the write-ahead log to the file, so that the file is no empty database if the log is lost.
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return copy
