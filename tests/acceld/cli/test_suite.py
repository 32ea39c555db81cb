"""``suite`` through a daemon with scripted parts: slices, resuming, competitors, and two suites side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acceld.cli.main import main
from acceld.workloads import workload


@pytest.fixture
def suite(folder: Path) -> str:
    (folder / "own.toml").write_text('name = "own"\n[[kernel]]\nworkload = "silu"\n[[kernel]]\nworkload = "mamba"\n')
    return "own.toml"


def test_a_suite_is_one_table_and_the_same_command_goes_on(
    daemon: str, suite: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["suite", "run", suite, "--strategy", "beam", "--hours", "1", "--home", daemon]
    assert main([*words, "--json", "-o", "bars.svg"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert [row["workload"] for row in first["rows"]] == ["silu", "mamba"]
    assert all(row["runs"] and row["speedup"] >= 1 for row in first["rows"])
    assert first["geometric_mean"]["count"] == 2 and ">silu<" in Path("bars.svg").read_text("utf-8")
    Path("competitors").mkdir()
    Path("competitors/silu_theirs.py").write_text(workload("silu").baselines["nki_legacy"].read_text("utf-8"), "utf-8")
    assert main([*words, "--competitors", "competitors", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert [row["runs"][: len(old["runs"])] for row, old in zip(again["rows"], first["rows"], strict=True)] == [
        row["runs"] for row in first["rows"]
    ]
    evaluated, without = again["rows"]
    assert evaluated["competitor_us"] is not None or "competitor: " in evaluated["note"]
    assert without["competitor_us"] is None and without["note"] == ""
    for name, record in (("a.json", first), ("b.json", again)):
        Path(name).write_text(json.dumps(record), "utf-8")
    assert main(["compare", "a.json", "b.json"]) == 0
    assert "geometric mean of 2: B is" in capsys.readouterr().out


def test_what_is_no_suite_is_a_usage_error(folder: Path, suite: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["suite", "run", suite, "other.toml"]) == 2
    assert main(["compare", "c.json", "b.json"]) == 2
    assert "there is no file c.json" in capsys.readouterr().err
