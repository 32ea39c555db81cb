"""Faults as functions with a number of rounds: the quick tests and ``scripts/faults.py`` run the same ones."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceld.client import Client
from acceld.errors import DaemonError
from acceld.home import Home
from acceld.store.maintenance import check

ROOT = Path(__file__).parents[2]


@dataclass
class Storage:
    """Effects of kill -9 on a writer, over all rounds."""

    rounds: int = 0
    acknowledged: int = 0
    lost: int = 0
    extra: int = 0
    """Greatest number of rows in one round that were committed but not acknowledged."""
    damaged: int = 0
    reopen_s: float = 0.0


def kill_writers(folder: Path, rounds: int, seed: int = 0) -> Storage:
    """Kill a writing process at random moments; examine the file each time."""
    rng, result, path = random.Random(seed), Storage(), folder / "acceld.db"
    for _ in range(rounds):
        child = start("tests.faults.storage_child", "write", str(path))
        assert child.stdout is not None
        first = child.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.12))
        child.send_signal(signal.SIGKILL)
        lines = [first, *child.stdout.read().splitlines(keepends=True)]
        child.wait()
        child.stdout.close()
        acknowledged = {int(line.split()[0]): line.split()[1] for line in lines if line.endswith("\n")}
        started = time.monotonic()
        report = check(path)
        result.reopen_s = max(result.reopen_s, time.monotonic() - started)
        reported = _rows(path, "SELECT seq, data ->> '$.text' AS text FROM events WHERE text IS NOT NULL")
        stored = {seq: text.split()[0] for seq, text in reported}
        result.rounds += 1
        result.acknowledged += len(acknowledged)
        result.lost += sum(stored.get(seq) != text for seq, text in acknowledged.items())
        result.extra = max(result.extra, max(stored) - max(acknowledged))
        result.damaged += bool(report.problems)
    return result


def start(
    module: str, *words: str, environment: dict[str, str] | None = None, talking: bool = False
) -> subprocess.Popen[str]:
    """Return a process of this interpreter whose output can be read."""
    # A daemon reads every certificate of the machine as it starts, for TLS that these processes do not use.
    environment = (environment or dict(os.environ)) | {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}
    return subprocess.Popen(
        [sys.executable, "-m", module, *words],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE if talking else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )


def _rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


@dataclass
class Resumed:
    """Effects of kill -9 of a daemon on a run."""

    kills: int = 0
    state: str = ""
    repeated: int = 0
    """Keys with more than one evaluation row."""
    evaluated_again: int = 0
    """Evaluations that were done twice because the first result was not yet written."""
    problems: tuple[str, ...] = ()


def kill_daemons(folder: Path, kills: int, seed: int = 0) -> Resumed:
    """Kill a daemon again and again during a run. Let the last daemon end the run."""
    rng, home = random.Random(seed), folder / ".acceld"
    log = folder / "evaluated.log"
    environment = os.environ | {
        "XDG_RUNTIME_DIR": str(folder),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "SCRIPTED_LOG": str(log),
        "SCRIPTED_S": "0.02",
    }
    from acceld.errors import DaemonError
    from acceld.home import Home

    result, run = Resumed(), 0
    for life in range(kills + 1):
        daemon = start("tests.acceld.daemon.scripted", "--home", str(home), environment=environment)
        try:
            client = client_of(Home(home))
            if not run:
                search = {"beam_width": 3, "plans": 4, "attempts": 2, "iterations": 6, "patience": 0}
                run = client.send("POST", "/v1/runs", {"workload": "silu", "search": search})["id"]
            if life < kills:
                time.sleep(rng.uniform(0.02, 0.25))
                daemon.send_signal(signal.SIGKILL)
                result.kills += 1
            else:
                deadline = time.monotonic() + 300
                while client.get(f"/v1/runs/{run}")["state"] not in ("finished", "failed"):
                    if time.monotonic() > deadline:
                        raise DaemonError("the run did not end")
                    time.sleep(0.05)
                daemon.send_signal(signal.SIGTERM)
        finally:
            if life < kills:
                daemon.kill()
            daemon.communicate(timeout=300)
    path = home / "acceld.db"
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    result.state = connection.execute("SELECT state FROM runs").fetchone()[0]
    result.repeated = connection.execute(
        "SELECT count(*) FROM (SELECT key FROM evaluations GROUP BY key HAVING count(*) > 1)"
    ).fetchone()[0]
    connection.close()
    result.evaluated_again = sum(count - 1 for count in Counter(log.read_text().split("\n")[:-1]).values())
    result.problems = check(path).problems
    return result


def client_of(home: Home) -> Client:
    """Return a client of the daemon that is starting."""
    deadline = time.monotonic() + 300
    while True:
        try:
            client = Client(home)
            client.get("/v1/hello")
        except DaemonError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return client


@dataclass
class Full:
    """Effects on a writer of a file that could not grow."""

    acknowledged: int
    readable: int
    recovered_s: float
    written: int
    """Every requested row, whether the writer had to wait or not."""
    stored: int
    problems: tuple[str, ...]


def fill_disk(folder: Path, limit_bytes: int) -> Full:
    """Let no file of a writing process grow beyond a size, then lift the limit."""
    path = folder / "acceld.db"
    child = start("tests.faults.storage_child", "full", str(path), str(limit_bytes), talking=True)
    assert child.stdout is not None and child.stdin is not None
    degraded = child.stdout.readline().split()
    readable = child.stdout.readline().split()
    rest, _ = child.communicate("more\n", timeout=300)
    _, recovered_s, written = rest.split()
    stored = _rows(path, "SELECT count(*) FROM events WHERE json_extract(data, '$.text') LIKE 'xxx%'")[0][0]
    return Full(int(degraded[1]), int(readable[1]), float(recovered_s), int(written), stored, check(path).problems)


MIGRATE_KILLED = """
import os, signal, sqlite3, sys
from pathlib import Path
from sqlite_utils import Database
from acceld.store.schema import migrations as m
from acceld.store.connection import connect_writer

@m.migration
def m099_test(db):
    for sql in (
        "CREATE TABLE later (id INTEGER PRIMARY KEY, text TEXT)",
        "INSERT INTO later SELECT seq, data FROM events",
        "ALTER TABLE runs ADD COLUMN later TEXT",
        "UPDATE runs SET later = 'x'",
        "CREATE INDEX later_text ON later(text)",
        f"PRAGMA user_version = {later_version}",
    ):
        db.conn.execute(sql)

later_version = m.SCHEMA_VERSION + 1
m.SCHEMA_VERSION = later_version
path, place = Path(sys.argv[1]), 0
while True:
    place += 1
    child = os.fork()
    if child == 0:
        connection = connect_writer(path)
        left = [place]
        def count(_):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        connection.set_trace_callback(count)
        m.migrate(connection, path)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    look = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    version = look.execute("PRAGMA user_version").fetchone()[0]
    columns = [row[1] for row in look.execute("PRAGMA table_info(runs)")]
    tables = {row[0] for row in look.execute("SELECT name FROM sqlite_schema")}
    sound = look.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    new = ("later" in columns, "later" in tables, "later_text" in tables)
    look.close()
    print(place, version, int(sound), int(all(new)), int(any(new)), flush=True)
    if status == 0:
        break
"""
"""Kills a migration at its first, second, ... statement, until a migration ends; prints what each kill leaves."""


def kill_migrations(path: Path) -> list[tuple[int, ...]]:
    """Return (statement, version, sound, all of the new schema, any of it) after each kill, and after the migration
    that ended.
    """
    done = subprocess.run(
        [sys.executable, "-c", MIGRATE_KILLED, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
