"""``evaluate`` on a file of kernels: results in their order, a table, and continuing after an interruption."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from acceld.cli.samples import summaries
from tests.standin_neuron.machine import KERNEL, NARROW, small_silu

WRONG = KERNEL.replace("operand0=1.0", "operand0=1.5")


def _record(workload: str, status: str, speedup: float | None) -> dict[str, object]:
    return {"workload": workload, "status": status, "speedup": speedup, "source": "simulated"}


def test_a_table_counts_the_best_of_each_group() -> None:
    records = [
        _record("a", "incorrect_numerical", None),
        _record("a", "passed", 0.5),
        _record("a", "passed", 2.0),
        _record("a", "passed", 1.0),
        _record("b", "timeout", None),
        _record("b", "rejected", None),
    ]
    a, b, everything = summaries(records, 2)
    assert (a.problems, a.correct_percent, a.fast_percent) == (2, 100.0, 50.0)
    assert (a.mean_speedup, a.greatest_speedup) == (1.25, 2.0)
    assert (b.correct_percent, b.mean_speedup, b.source) == (0.0, None, "")
    assert (everything.name, everything.problems) == ("all", 3)
    assert everything.correct_percent == pytest.approx(200 / 3)


def test_kernels_of_a_file_are_evaluated_in_order_and_a_cut_output_goes_on(tmp_path: Path) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    small_silu(tmp_path, NARROW)
    environment = os.environ | {
        "XDG_RUNTIME_DIR": str(runtime),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "ACCELD_HOME": str(tmp_path / ".acceld"),
        "ACCELD_EVALUATE_SLOTS": "1",
    }

    def acceld(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "acceld", *words],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done

    place = {"workload": "small_silu", "workload_folder": str(tmp_path / "small_silu")}
    (tmp_path / "mine.py").write_text(KERNEL)
    lines = [
        {"id": "wrong", **place, "kernel": WRONG},
        {"id": "wide", **place, "file": "mine.py"},
        {**place, "kernel": "import os\n" + KERNEL},
        {"workload": "nowhere", "kernel": KERNEL},
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = ("evaluate", "--jsonl", "in.jsonl", "--out", "out.jsonl", "--gate", "search", "--best-of", "2")
    try:
        table = acceld(*options, "--table").stdout
        records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        assert [one["id"] for one in records] == ["wrong", "wide", 3, 4]
        assert [one["status"] for one in records] == ["incorrect_numerical", "passed", "rejected", None]
        assert records[1]["speedup"] > 1.0
        assert records[1]["source"] == "simulated"
        assert "no workload 'nowhere'" in records[3]["error"]
        assert table.splitlines()[1].split()[:2] == ["small_silu", "2"]
        whole = (tmp_path / "out.jsonl").read_bytes()
        (tmp_path / "out.jsonl").write_bytes(whole[:-20])
        again = acceld(*options)
        assert "has 3 of 4 results" in again.stderr
        assert (tmp_path / "out.jsonl").read_bytes() == whole
        (tmp_path / "in.jsonl").write_text(json.dumps({"id": "other", **place, "kernel": KERNEL}) + "\n")
        assert "another input" in acceld(*options, code=2).stderr
    finally:
        acceld("stop")
