"""acceld model divides a model's step into regions, and writes a suite of their workloads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acceld.cli.main import main
from acceld.search.suites import read_suite
from acceld.workloads import load_workload
from tests.acceld.lowering.test_blocks import SMALL

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}


def test_the_table_has_counts_shapes_shares_and_bounds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    assert main(["model", "config.json", "--tp", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    regions = {one["region"]: one for one in found["regions"]}
    assert regions["norm_gate_up"]["arguments"]["wg"] == [3584, 4096, "bfloat16"]
    assert regions["norm_gate_up"]["count"] == 32 and regions["norm_gate_up"]["bound"] == "products"
    assert sum(one["share"] for one in regions.values()) == pytest.approx(1.0)
    assert found["least_us"] == pytest.approx(sum(one["count"] * one["least_us"] for one in regions.values()))
    assert main(["model", "config.json", "--tp", "4", "--batch", "8", "--decode"]) == 0
    table = capsys.readouterr().out
    assert "8x2x2048x128" in table and "one token of 8 sequences" in table
    assert all("bytes" in line for line in table.splitlines() if line.startswith(("down", "attention", "norm")))


def test_a_suite_has_a_workload_and_a_share_for_each_region_that_matters(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {**SMALL, "vocab_size": 8}
    Path("config.json").write_text(json.dumps(small), encoding="utf-8")
    assert main(["model", "config.json", "--seq", "32", "--least-share", "18", "-o", "suite"]) == 0
    suite = read_suite(folder / "suite" / "suite.toml")
    assert suite.entries and all(0.18 <= entry.share <= 1 for entry in suite.entries)
    for entry in suite.entries:
        workload = load_workload(Path(entry.workload))
        assert set(workload.baselines) == {"nki", "nki_legacy"} and workload.work is not None
    assert main(["model", "config.json", "-o", "suite"]) == 2
    assert "suite exists" in capsys.readouterr().err


def test_a_step_without_tokens_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    assert main(["model", "config.json", "--seq", "0"]) == 2
    assert "--seq must be 1 or more" in capsys.readouterr().err
