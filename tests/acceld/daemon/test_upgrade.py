"""A daemon of today continues a real search that a daemon of an earlier release left, and never mixes their latencies.

``tests/store/releases/under_way_N.db.gz`` is the history of the last release of schema N: its daemon searched on silu
with the quick preset and was killed in the run's only iteration. That of schema 9 was killed as soon as it had opened
schema 8's.
"""

from __future__ import annotations

import gzip
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from acceld.client import Client
from acceld.events import TimedAgain
from acceld.home import Home
from acceld.nki.timing.version import model_version
from acceld.store.maintenance import check
from acceld.store.schema.migrations import SCHEMA_VERSION
from tests.store.test_releases import RELEASES

ROOT = Path(__file__).parents[3]
LEFT = {int(path.name.split("_")[2].split(".")[0]): path for path in RELEASES.glob("under_way_*.db.gz")}


def test_there_is_a_run_under_way_of_each_of_the_last_three_schemas() -> None:
    assert set(LEFT) >= set(range(SCHEMA_VERSION - 3, SCHEMA_VERSION))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Return a state folder of the test's own."""
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    made = Home(tmp_path / ".acceld")
    made.prepare()
    return made


def put(saved: Path, home: Home, folder: Path) -> dict[int, float]:
    """Put a saved history into a state folder. Return the latencies of its candidates."""
    home.database.write_bytes(gzip.decompress(saved.read_bytes()))
    home.database.chmod(0o600)
    with closing(sqlite3.connect(home.database, isolation_level=None)) as connection:
        connection.execute("UPDATE runs SET workload_folder = ?", (str(folder),))
        return dict(connection.execute("SELECT id, latency_us FROM candidates WHERE latency_us IS NOT NULL"))


@pytest.fixture
def daemon(home: Home) -> Iterator[subprocess.CompletedProcess[str] | None]:
    """Stop the daemon of the state folder afterwards."""
    yield None
    subprocess.run([sys.executable, "-m", "acceld", "stop", "--home", str(home.path)], check=False, capture_output=True)


@pytest.mark.slow
@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize("schema", range(SCHEMA_VERSION - 3, SCHEMA_VERSION))
def test_it_ends_with_latencies_of_one_model_and_says_so(schema: int, home: Home) -> None:
    before = put(LEFT[schema], home, ROOT / "workloads/nkibench/silu")
    assert len(before) >= 4
    subprocess.run(
        [sys.executable, "-m", "acceld", "start", "--home", str(home.path)], check=True, capture_output=True, text=True
    )
    client = Client(home)
    told = [event.data for event in client.follow(1, 20.0)]
    assert [one.candidates for one in told if isinstance(one, TimedAgain)] == [len(before)]
    run: dict[str, Any] = client.get("/v1/runs/1")
    rows = {row["id"]: row for row in client.get("/v1/runs/1/candidates", limit=500)["candidates"]}
    assert run["state"] == "finished" and run["speedup"] > 1
    assert f"{len(before)} kernels were timed again" in run["timed_again"]
    assert f"the performance model (9 → {model_version()})" in run["timed_again"].replace("9.21dc60a4", "9")
    assert set(rows) > set(before)
    for row in rows.values():
        if row["latency_us"] is not None:
            assert row["speedup"] == pytest.approx(run["baseline_latency_us"] / row["latency_us"]), row
    assert run["speedup"] == pytest.approx(run["baseline_latency_us"] / run["best_latency_us"])
    with closing(sqlite3.connect(home.database)) as connection:
        models = "SELECT DISTINCT p.model FROM candidates c JOIN profiles p ON p.evaluation = c.evaluation"
        assert connection.execute(models).fetchall() == [(model_version(),)]
    assert check(home.database).problems == ()
