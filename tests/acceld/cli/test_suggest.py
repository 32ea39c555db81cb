"""Suggestions of the rules, for workloads and for files of a person's own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from acceld.cli.main import main
from acceld.proposers.rules.records import reason_at
from acceld.workloads import workload


def reported(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main(["suggest", *words, "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["suggestions"]
    return found


def test_a_file_gets_what_its_workload_gets_where_the_workload_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = tmp_path / "mine.py"
    source = workload("silu").baselines["nki"].read_text()
    kernel.write_text(source)
    by_workload = reported(capsys, "silu")
    assert {one["rule"] for one in by_workload} >= {"widen_tiles", "composite_activation"}
    assert all(one["diff"].startswith("--- kernel\n+++ suggested\n@@") for one in by_workload)
    assert all(one["changed"] != source and "@nki.jit" in one["changed"] for one in by_workload)
    assert reported(capsys, str(kernel), "--workload", "silu") == reported(capsys, "silu")
    (only,) = {one["rule"] for one in reported(capsys, str(kernel), "--rule", "widen_tiles")}
    assert only == "widen_tiles" and kernel.read_text() == source, "nothing is edited"


def test_what_can_not_be_suggested_is_refused_with_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, complaint in (
        (["silu", "--workload", "adamw"], "--workload works only with a kernel file"),
        (["silu", "--rule", "widen_tile"], "widen_tiles"),
        (["silu", "--api", "triton"], "has no kernel for triton; it has kernels for nki and nki_legacy"),
        ([str(tmp_path / "none.py")], "none.py"),
        (["silu", "--shapes", "1"], "--shapes 1\n  acceld suggest --help lists its arguments"),
        (["silu", "--workloads", "adamw"], "Did you mean '--workload'?"),
    ):
        assert main(["suggest", *words]) != 0
        assert complaint in capsys.readouterr().err


def test_a_refusal_says_what_a_second_line_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["suggest", "mamba", "--api", "nki_legacy", "--rule", "widen_tiles"]) == 0
    refused = [line for line in capsys.readouterr().out.splitlines() if " refuses: " in line]
    assert any(
        "widen_tiles refuses: prevented by line 26: tensor_tensor_scan is not element-wise" in one for one in refused
    )
    assert not any(re.search(r"refuses: line \d+:", one) for one in refused)


def test_a_reason_names_the_line_of_the_obstacle_only_if_it_is_another_line() -> None:
    assert reason_at(13, "line 15: i is a sequential_range") == "prevented by line 15: i is a sequential_range"
    assert reason_at(15, "line 15: i is a sequential_range") == "i is a sequential_range"
    assert reason_at(13, "line 15 reads x too") == "line 15 reads x too"


def test_a_kernel_that_does_not_run_is_told_so_before_the_suggestions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = workload("silu").baselines["nki"].read_text()
    kernel = tmp_path / "mine.py"
    kernel.write_text(source.replace("buffer=nl.sbuf", "buffer=nl.sbuf, align=4", 1))
    assert kernel.read_text() != source
    assert main(["suggest", str(kernel), "--workload", "silu", "--rule", "widen_tiles"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert "does not run, so mend this first: line " in first and "align" in first
    assert main(["suggest", str(kernel), "--workload", "silu", "--rule", "widen_tiles", "--json"]) == 0
    assert "align" in json.loads(capsys.readouterr().out)["fault"]
    assert main(["suggest", str(kernel), "--rule", "widen_tiles"]) == 0
    assert "was read and not traced" in capsys.readouterr().out.splitlines()[0]
