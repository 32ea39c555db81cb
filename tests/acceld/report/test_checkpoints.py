"""A checkpoint of AccelOpt becomes a run with its plans, failures, beams, lineage and memory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from acceld.cli.main import main

BASE = "import neuronxcc.nki as nki\n\n\ndef kernel(x):\n    return 1\n"
FAST = "def kernel(x):\n    return 2\n"
FASTER = "def kernel(x):\n    return 3\n"


def record(baseline: str, baseline_ms: float, body: str, **result: Any) -> dict[str, Any]:
    """Return one answer as AccelOpt's executor writes it."""
    metadata = result.pop("metadata", {})
    return {
        "body": body,
        "spec_code": "def forward(x): ...",
        "baseline": baseline,
        "baseline_latency": baseline_ms,
        "problem": "silu",
        "values": "{}",
        "kernel_metadata": json.dumps(metadata),
        "baseline_metadata": "{}",
        **result,
    }


def write_iteration(folder: Path, services: list[dict[str, Any]], plans: list[str], rewrites: list[Any]) -> None:
    (folder / "rewrites").mkdir(parents=True)
    written = [{"service_name": one["service_name"], "reasonings": [], "plans": plans} for one in services]
    (folder / "planner_results.json").write_text(json.dumps(written))
    (folder / "executor_results.json").write_text(json.dumps({"exp_date": folder.name, "executor_results": services}))
    (folder / "rewrites" / "aggregated_rewrites_list.json").write_text(json.dumps(rewrites))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    case = tmp_path / "ck" / "silu_M4096_N7168_ID0"
    case.mkdir(parents=True)
    (case / "log.txt").write_text("11-11-09-04\n11-11-10-00\n11-11-11-00\n")
    name = "silu_M4096_N7168_ID0"
    first = {
        "service_name": name,
        "case_name": name,
        "plan_0_0": record(BASE, 2.0, FAST, latency=1.5, speedup=4 / 3, metadata={"hbm_read_bytes": 512}),
        "plan_0_1": {"error": "No implementation found"},
        "plan_1_0": record(BASE, 2.0, "bad", error="no such call", metadata={"compilation_error": "no such call"}),
        "plan_1_1": record(BASE, 2.0, "slow", error="Hard timeout after 180s"),
    }
    write_iteration(case / "11-11-09-04", [first], ["**Fuse** exp into evict\nmore", "Tile wider"], [])
    second = {
        "service_name": f"{name}_IDf1",
        "case_name": name,
        "plan_0_0": record(FAST, 1.5, FASTER, latency=1.0, speedup=1.5),
        "plan_0_1": record(FAST, 1.5, "wrong", error="off", metadata={"correctness_error": "off"}),
    }
    entry = {
        "title": "**Fuse exp**",
        "summary": "**Fuse exp** saves a pass",
        "slow_kernel": BASE,
        "fast_kernel": FAST,
        "speedup": 4 / 3,
        "speedup_original": 4 / 3,
    }
    write_iteration(case / "11-11-10-00", [second], ["Widen"], [entry, entry])
    return case.parent


def rows(home: Path, sql: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["query", sql, "--json", "--home", str(home)]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
    return found


def test_a_checkpoint_becomes_a_run(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "home"
    assert main(["import", str(checkpoint), "--chip", "trn1", "--home", str(home), "--json"]) == 0
    (made,) = json.loads(capsys.readouterr().out)["runs"]
    assert (made["workload"], made["iterations"], made["insights"]) == ("silu_M4096_N7168", 2, 1)
    (run,) = rows(home, "SELECT baseline_latency_us, best_latency_us, state, backend FROM runs", capsys)
    assert (run["baseline_latency_us"], run["best_latency_us"]) == (2000.0, 1000.0)
    assert (run["state"], run["backend"]) == ("finished", "imported")
    found = rows(home, "SELECT id, parent, status, latency_us FROM candidates ORDER BY id", capsys)
    statuses = [row["status"] for row in found]
    assert statuses == ["passed", "passed", "compile_error", "timeout", "passed", "incorrect_numerical"]
    assert [row["parent"] for row in found] == [None, 1, 1, 1, 2, 2], "a parent is found by its text"
    assert rows(home, "SELECT count(*) AS n FROM attempts WHERE text_sha256 IS NULL", capsys)[0]["n"] == 1
    assert rows(home, "SELECT title FROM plans WHERE id = 1", capsys)[0]["title"] == "Fuse exp into evict"
    beams = rows(home, "SELECT iteration, candidate FROM beams ORDER BY iteration, place", capsys)
    assert [(row["iteration"], row["candidate"]) for row in beams] == [(1, 2), (2, 5)]
    (insight,) = rows(home, "SELECT title, slow_candidate, fast_candidate, source FROM insights", capsys)
    assert (insight["title"], insight["slow_candidate"], insight["fast_candidate"]) == ("Fuse exp", 1, 2)


def test_a_checkpoint_without_a_chip_is_refused(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", str(checkpoint), "--home", str(tmp_path / "home")]) == 2
    assert "--chip" in capsys.readouterr().err


def test_one_case_is_a_checkpoint_as_well_and_a_broken_one_is_reported(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = next(checkpoint.iterdir())
    assert main(["import", str(case), "--chip", "trn1", "--home", str(tmp_path / "one")]) == 0
    shutil.copytree(case, tmp_path / "broken")
    (tmp_path / "broken" / "11-11-09-04" / "executor_results.json").write_text('{"executor_results": [{"plan_x": 1}]}')
    assert main(["import", str(tmp_path / "broken"), "--chip", "trn1", "--home", str(tmp_path / "two")]) == 2
    assert "is not a checkpoint of AccelOpt" in capsys.readouterr().err
