"""``ablate`` through a daemon with scripted parts, and what ``optimize`` refuses or shows without one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acceld.cli.main import main

MODEL = """
[models.local]
base_url = "http://127.0.0.1:9/v1"
input_usd_per_mtok = 1.0
output_usd_per_mtok = 2.0
[llm.planner]
models = ["local"]
[llm.executor]
models = ["local"]
"""


@pytest.fixture
def with_model(folder: Path) -> Path:
    """Name a model in the user's configuration."""
    (folder / "config" / "acceld").mkdir(parents=True)
    (folder / "config" / "acceld" / "acceld.toml").write_text(MODEL, encoding="utf-8")
    return folder


def test_variants_run_at_equal_cost_and_are_shown(daemon: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["ablate", "silu", "--vary", "beam=1,2", "memory=off,fifo", "--budget", "candidates=6"]
    assert main([*words, "--repeats", "2", "-o", "plot.html", "--home", daemon, "--json"]) == 0
    captured = capsys.readouterr()
    answer = json.loads(captured.out)
    assert [one["name"] for one in answer["variants"]] == ["base: beam=4", "beam=1", "beam=2"]
    assert all(one["candidates"] == 6 and len(one["runs"]) == 2 for one in answer["variants"])
    assert all(one["speedup"] > 1 for one in answer["variants"])
    assert "memory has no effect here and is left out: rewrite rules do not read the memory" in captured.err
    assert "beam=1" in Path("plot.html").read_text(encoding="utf-8")
    assert main(["ablate", "silu", "--vary", "beam=1", "--budget", "candidates=3", "--home", daemon]) == 0
    printed = capsys.readouterr().out
    assert "a  base: beam=4" in printed and "b  beam=1" in printed and "insights alike" in printed


def test_proposers_are_compared_at_equal_cost(daemon: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["ablate", "silu", "--vary", "proposer=rules,llm,both", "--budget", "candidates=4"]
    assert main([*words, "--home", daemon, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in answer["variants"]] == ["proposer=rules", "proposer=llm", "proposer=both"]
    assert {one["candidates"] for one in answer["variants"]} == {4}


def test_what_can_not_be_varied_is_a_usage_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ablate", "silu", "--vary", "bream=1"]) == 2
    assert "beam" in capsys.readouterr().err
    assert main(["ablate", "silu", "--vary", "memory=fifo"]) == 2
    assert main(["ablate", "silu", "--vary", "beam=1", "-o", "plot.gif"]) == 2


@pytest.mark.usefixtures("untried")
def test_prompts_are_shown_and_nothing_is_sent(with_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (with_model / "mine.py").write_text("def forward(x):\n    return x + x\n", encoding="utf-8")
    words = ["optimize", "--from-reference", "mine.py", "--arg", "x=128x64:float32", "--proposer", "llm"]
    assert main([*words, "--show-prompts", "--json", "--fixer-steps", "1", "--memory", "fifo"]) == 0
    prompts = json.loads(capsys.readouterr().out)["prompts"]
    assert [one["role"] for one in prompts] == ["executor", "planner", "executor", "fixer", "summarizer"]
    assert all(one["endpoint"] == "http://127.0.0.1:9/v1" and one["key_variable"] == "" for one in prompts)
    assert "return x + x" in prompts[0]["system"] and "x: float32 (128, 64)" in prompts[0]["system"]
    assert not (with_model / ".acceld" / "acceld.db").exists()


def test_rules_write_no_first_kernel_and_send_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", "silu", "--from-reference"]) == 2
    assert "can not write the first kernel" in capsys.readouterr().err
    assert main(["optimize", "silu", "--show-prompts"]) == 2
    assert "the proposer rules sends no prompts" in capsys.readouterr().err


@pytest.mark.usefixtures("untried")
def test_a_reference_file_becomes_a_workload(with_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (with_model / "mine.py").write_text(
        "import numpy as np\n\n\ndef forward(x, w):\n    return np.maximum(x @ w, 0)\n", encoding="utf-8"
    )
    words = ["optimize", "--from-reference", "mine.py", "--arg", "x=64x32:float32", "--arg", "w=32x16:float32"]
    assert main([*words, "--proposer", "llm", "--dry-run", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["workload"] == "mine" and answer["calls"] > 0
    (made,) = (with_model / ".acceld" / "workloads").iterdir()
    text = (made / "workload.toml").read_text(encoding="utf-8")
    assert "[arguments.x]" in text and "shape = [64, 16]" in text and "distribution" in text
    assert main([*words, "--proposer", "llm", "--dry-run"]) == 0
    assert len(list((with_model / ".acceld" / "workloads").iterdir())) == 1
    assert main(["optimize", "--from-reference", "mine.py", "--proposer", "llm", "--dry-run"]) == 2
    assert "get_inputs" in capsys.readouterr().err
