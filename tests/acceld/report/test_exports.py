"""Reports, exports and imports over a real history."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from acceld.cli.connect import reading
from acceld.cli.main import main
from acceld.model import FLASHINFER_STATUS
from acceld.report.facts import gather
from acceld.report.imports import flashinfer
from acceld.report.markdown import markdown
from acceld.report.page import page
from acceld.report.scrub import scrubbed
from tests.store.records import state_with_runs


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a state folder with one finished run: a win of 50 us over 100, a failure, an attempt without code."""
    return state_with_runs(tmp_path_factory.mktemp("state"), best_us=50.0)


def exported(home: Path, folder: Path, kind: str) -> list[dict[str, Any]]:
    assert main(["export", "--format", kind, "-o", str(folder), "--home", str(home)]) == 0
    rows = [json.loads(line) for file in sorted(folder.glob("t*.jsonl")) for line in file.read_text().splitlines()]
    return rows


def test_a_page_is_complete_and_states_the_result(home: Path, tmp_path: Path) -> None:
    place = tmp_path / "r.html"
    assert main(["export", "r1", "-o", str(place), "--home", str(home)]) == 0
    html = place.read_text()
    assert "2.00x" in html and "Simulated: no chip ran this." in html
    assert not re.search(r'(?:src|href)="(?!#)', html.replace("href='#", "")), "nothing is fetched"
    assert "<script" not in html and len(html) < 1_000_000
    assert html.count("<svg") >= 3 and html.count("<svg") == html.count("</svg>") == html.count("aria-label")
    assert "@media print" in html and "prefers-color-scheme: dark" in html


def test_a_report_names_what_people_steered_and_a_redacted_one_no_words_of_theirs(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steered_home = shutil.copytree(home, tmp_path / "home")
    data = {"action": "hint", "by": "ada", "text": "keep <w> in SBUF", "result": "stored"}
    with closing(sqlite3.connect(steered_home / "acceld.db", isolation_level=None)) as history:
        history.execute("INSERT INTO events (run, kind, at, data) VALUES (1, 'steered', 1.5e9, ?)", (json.dumps(data),))
    pages = []
    for more in ([], ["--redact"]):
        place = tmp_path / "r.html"
        assert main(["export", "r1", *more, "-o", str(place), "--home", str(steered_home)]) == 0
        pages.append(place.read_text())
    assert "<td>ada</td><td>hint: text keep &lt;w&gt; in SBUF</td><td>stored</td>" in pages[0]
    assert "<td>hint</td>" in pages[1] and "SBUF</td>" not in pages[1] and "ada" not in pages[1]
    capsys.readouterr()
    assert main(["export", "r1", "--format", "md", "--home", str(steered_home)]) == 0
    assert "steered by people: `hint: text keep <w> in SBUF`" in capsys.readouterr().out


def test_pictures_without_their_package_say_why_it_is_needed(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    assert main(["export", "r1", "--format", "png", "-o", str(tmp_path / "png"), "--home", str(home)]) == 2
    told = capsys.readouterr().err
    assert "acceld draws figures as SVG and has no renderer of its own" in told and "prints to PDF" in told


def test_markdown_for_a_pull_request(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "r1", "--format", "md", "--home", str(home)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("## ") and "| latency | 100 µs | 50.0 µs |" in text and "```diff" in text


def test_pairs_hold_slow_and_fast(home: Path, tmp_path: Path) -> None:
    (pair,) = exported(home, tmp_path / "x", "pairs")
    assert (pair["slow_latency_us"], pair["fast_latency_us"], pair["speedup"]) == (100.0, 50.0, 2.0)
    assert pair["slow"] != pair["fast"] and pair["source"] == "simulated"


def test_a_tie_is_no_example_of_a_faster_kernel(tmp_path: Path) -> None:
    tied = state_with_runs(tmp_path / "tied")
    assert exported(tied, tmp_path / "pairs", "pairs") == exported(tied, tmp_path / "sft", "trl-sft") == []
    rewards = [row["extra_info"]["reward"] for row in exported(tied, tmp_path / "verl", "verl")]
    assert max(rewards) == 0.0


def test_training_rows_have_the_shapes_their_trainers_read(home: Path, tmp_path: Path) -> None:
    (sft,) = exported(home, tmp_path / "sft", "trl-sft")
    assert [message["role"] for message in sft["messages"]] == ["user", "assistant"]
    (dpo,) = exported(home, tmp_path / "dpo", "trl-dpo")
    assert set(dpo) == {"prompt", "chosen", "rejected"} and dpo["chosen"] != dpo["rejected"]
    verl = exported(home, tmp_path / "verl", "verl")
    assert all(row["prompt"][0]["role"] == "user" and row["reward_model"]["style"] == "rule" for row in verl)
    rewards = sorted(row["extra_info"]["reward"] for row in verl)
    assert rewards[0] < 0 < rewards[-1]
    assert "configs:" in (tmp_path / "verl" / "README.md").read_text()


def test_every_candidate_and_every_silent_attempt_is_a_row(home: Path, tmp_path: Path) -> None:
    rows = exported(home, tmp_path / "all", "jsonl")
    assert sorted(row["status"] for row in rows).count("no_code") == 1
    assert len(rows) == 4


def test_a_folder_that_is_not_empty_is_left_alone(home: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    assert main(["export", "--format", "pairs", "-o", str(tmp_path), "--home", str(home)]) == 2


def test_traces_keep_to_the_rules_of_flashinfer_bench_and_come_back(home: Path, tmp_path: Path) -> None:
    exported(home, tmp_path / "fi", "flashinfer")
    traces = [json.loads(line) for line in (tmp_path / "fi" / "traces.jsonl").read_text().splitlines()]
    assert traces
    for trace in traces:
        result = trace["evaluation"]
        assert result["status"] in set(FLASHINFER_STATUS.values())
        assert ("performance" in result) == (result["status"] == "PASSED")
        assert ("correctness" in result) == (result["status"] in ("PASSED", "INCORRECT_NUMERICAL"))
        assert result["environment"]["hardware"] == "trn1 (simulated)"
    other = tmp_path / "other"
    assert main(["import", str(tmp_path / "fi"), "--home", str(other)]) == 0
    assert main(["runs", "--sort=-id", "--home", str(other), "--csv"]) == 0


def test_an_imported_history_has_the_figures_it_was_given(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported(home, tmp_path / "fi", "flashinfer")
    main(["import", str(tmp_path / "fi"), "--home", str(tmp_path / "other")])
    capsys.readouterr()
    assert main(["runs", "--sort=-id", "--home", str(tmp_path / "other"), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["baseline_latency_us"], row["best_latency_us"], row["source"]) == (100.0, 50.0, "simulated")


def test_a_definition_tried_on_two_workloads_is_two_runs(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "fi"
    exported(home, folder, "flashinfer")
    rows = [json.loads(line) for line in (folder / "traces.jsonl").read_text().splitlines()]
    other = [{**row, "workload": {**row["workload"], "uuid": "0123456789"}} for row in rows]
    (folder / "traces.jsonl").write_text("\n".join(json.dumps(row) for row in [*rows, *other]))
    names = {one.workload for one in flashinfer(folder)}
    assert len(names) == 2 and any(name.endswith("@01234567") for name in names)


def test_cases_of_nkibench_become_workloads(tmp_path: Path) -> None:
    for name, text in {
        "reference/silu_numpy.py": "import numpy as np\n\ndef get_inputs():\n    return [np.ones((128, 64), np.float32)]\n\n"
        "def forward(x):\n    return x / (1 + np.exp(-x))\n",
        "kernels/silu.py": "def kernel(x):\n    return x\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    impl = {"task": "./reference/silu_numpy.py", "kernel": "./kernels/silu.py"}
    lost = {"task": "./reference/none.py", "kernel": "./kernels/silu.py"}
    summary = {"silu": {"seed": "", "cases": {"0": {"values": {"M": 128}, "impls": [impl]}}}}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    into = tmp_path / "workloads"
    assert main(["import", str(tmp_path), "--into", str(into)]) == 0
    assert "shape = [128, 64]" in (into / "silu_0" / "workload.toml").read_text()
    summary["lost"] = {"seed": "", "cases": {"0": {"values": {}, "impls": [lost]}}}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    assert main(["import", str(tmp_path / "summary.json"), "--into", str(tmp_path / "again")]) == 1


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("key sk-ant-api03-abcdefghijklmnop", "key [removed]"),
        ("Authorization: Bearer abcdefgh12345678", "Authorization: Bearer [removed]"),
        ("OPENAI api_key = 'abcdefgh1234'", "OPENAI api_key = '[removed]'"),
        ("in /home/ada/work/kernel.py", "in ~/work/kernel.py"),
        ("scale = nl.load(token_ids)", "scale = nl.load(token_ids)"),
    ],
)
def test_secrets_and_homes_do_not_leave(text: str, clean: str) -> None:
    assert scrubbed(text) == clean


HOSTILE = "</details><script>alert(1)</script>"


def hostile(value: Any) -> Any:
    """Return an answer of the history in which every text is an attack, but for the words that acceld itself chooses."""
    own = ("chip", "source", "kind", "state", "api", "method")
    if isinstance(value, dict):
        return {key: entry if key in own else hostile(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [hostile(entry) for entry in value]
    return f"```\n{value}\n```\n{HOSTILE}" if isinstance(value, str) else value


def test_no_text_of_a_run_becomes_markup_in_a_report(home: Path) -> None:
    with reading(str(home)) as history:
        facts = gather(lambda path, **parameters: hostile(history.get(path, **parameters)), 1)
    failed = replace(facts, outcome={**facts.outcome, "best_latency_us": None})
    assert HOSTILE in facts.best["text"] and facts.outcome["wins"]  # type: ignore[index]
    for one in (facts, failed):
        tokens = MarkdownIt("commonmark").enable("table").parse(markdown([one]))
        raw = [token.content for token in tokens if token.type == "html_block"]
        assert all(text.strip() in ("<details><summary>diff</summary>", "</details>") for text in raw)
        inline = {inner.type for token in tokens for inner in token.children or ()}
        assert inline <= {"text", "softbreak", "strong_open", "strong_close", "code_inline"}
        assert "<script" not in page([one], "1")
