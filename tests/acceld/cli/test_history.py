"""Commands that show the history, on a real history without a daemon."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from acceld.cli.main import COMMANDS, main, parser_of
from acceld.cli.run_table import moment
from acceld.errors import UsageError
from tests.store.records import state_with_runs


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return state_with_runs(tmp_path_factory.mktemp("state"), 2)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(list(words)) == 0
    return capsys.readouterr().out


def test_runs_by_condition_in_every_form(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ("runs", "--home", str(home), "--where", "speedup > 1.2 and candidates >= 1", "--sort", "id")
    found = json.loads(printed(capsys, *where, "--json"))
    assert [row["id"] for row in found["rows"]] == [2, 1]
    assert len(printed(capsys, *where, "--jsonl").splitlines()) == 2
    assert next(csv.DictReader(io.StringIO(printed(capsys, *where, "--csv"))))["speedup"] == "1.25"
    assert printed(capsys, *where).splitlines()[0].startswith("run ")
    assert json.loads(printed(capsys, *where, "--workload", "no such", "--json"))["rows"] == []


@pytest.mark.parametrize("name", ["best", "near-best", "cost-per-win", "insight-winrate", "flaky", "models"])
def test_saved_queries_answer(home: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "columns" in json.loads(printed(capsys, "runs", "--saved", name, "--home", str(home), "--json"))


def test_failures_have_messages_and_the_first_tables_are_those_that_people_ask_for(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(printed(capsys, "runs", "--saved", "failures", "--home", str(home), "--json"))
    assert found["rows"] and all(row["message"] for row in found["rows"] if row["rule"])
    named = json.loads(printed(capsys, "query", "--tables", "--home", str(home), "--json"))["rows"]
    assert [row["table"] for row in named][:3] == ["history", "results", "rewrites"]
    near = json.loads(printed(capsys, "runs", "--saved", "near-best", "--home", str(home), "--json"))["rows"]
    assert sum(row["is_best"] for row in near) == 2 and all(row["slower_percent"] <= 0.5 for row in near)


def test_a_wrong_condition_or_name_is_reported(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--home", str(home), "--where", "speedupp > 1"]) == 2
    assert "no such column" in capsys.readouterr().err
    assert main(["runs", "--home", str(home), "--saved", "bst"]) == 2
    assert "Did you mean 'best'?" in capsys.readouterr().err
    assert main(["runs", "--home", str(home), "--where", "1) ; delete from runs --"]) == 2


def test_the_greatest_come_first_as_documented(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, "runs", "--home", str(home), "--sort", "-speedup", "--json"))
    assert len(found["rows"]) == 2


def test_times_are_text_in_views_and_in_tables_for_people(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    iso = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
    for sql in ("SELECT created_at FROM history", "SELECT timestamp FROM flashinfer_traces"):
        rows = json.loads(printed(capsys, "query", sql, "--home", str(home), "--json"))["rows"]
        assert rows and all(iso.fullmatch(value) for row in rows for value in row.values())
    lines = printed(capsys, "query", "SELECT created_at FROM runs", "--home", str(home)).split()
    assert lines[0] == "created_at" and iso.fullmatch(lines[-1])
    stored = json.loads(printed(capsys, "query", "SELECT created_at FROM runs", "--home", str(home), "--json"))["rows"]
    assert isinstance(stored[0]["created_at"], float)
    for since, count in (("1h", 2), ("2100-01-01", 0)):
        words = ("runs", "--home", str(home), "--since", since, "--json")
        assert len(json.loads(printed(capsys, *words))["rows"]) == count


def test_a_pipe_gets_whole_cells_and_an_empty_answer_says_so(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = "long " * 40
    assert long.strip() in printed(capsys, "query", f"SELECT '{long}' AS words FROM runs", "--home", str(home))
    assert main(["query", "SELECT id FROM runs WHERE id > 99", "--home", str(home)]) == 0
    assert "no rows" in capsys.readouterr().err


def test_a_candidate_is_not_taken_for_a_workload(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["apply", "c2", str(tmp_path / "mine.py"), "--home", str(home)]) == 2
    told = capsys.readouterr().err
    assert "c2 is a candidate" in told and "r1 names its run" in told


def test_tables_are_listed_and_the_nearest_is_named_for_a_misspelt_one(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = {
        row["table"]: row["columns"]
        for row in json.loads(printed(capsys, "query", "--tables", "--home", str(home), "--json"))["rows"]
    }
    assert "speedup" in listed["runs"].split(", ") and "cost_usd" in listed["history"].split(", ")
    assert "plans_search_data" not in listed and "_sqlite_migrations" not in listed
    for sql, meant in (("SELECT * FROM rnus", "runs"), ("SELECT speedupp FROM runs", "speedup")):
        assert main(["query", sql, "--home", str(home)]) == 2
        assert f"Did you mean {meant!r}?" in capsys.readouterr().err
    for sql, said in (
        ("near-best", "acceld runs --saved near-best"),
        ("delete from history", "can not be changed by SQL"),
    ):
        assert main(["query", sql, "--home", str(home)]) == 2
        assert said in capsys.readouterr().err
    assert main(["query", "--home", str(home)]) == 2
    assert "--tables" in capsys.readouterr().err


def test_words_are_found_in_plans_and_insights(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, "runs", "--search", "hoist", "--home", str(home), "--json"))
    assert {row["kind"] for row in found["rows"]} == {"insight"}


def test_a_tree_in_every_form(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = printed(capsys, "tree", "r1", "--home", str(home))
    assert "★ best" in plain and plain.startswith("c1  ✓ passed")
    found = json.loads(printed(capsys, "tree", "r1", "--home", str(home), "--json"))
    assert len(found["candidates"]) == 3 and found["best"] == 2
    assert main(["tree", "r1", "--home", str(home)]) == 0
    counted = re.search(r"r1: (\d+) candidates, best c\d+; (.*)", capsys.readouterr().err)
    shown = re.search(r"^candidates +(.*)$", printed(capsys, "show", "r1", "--home", str(home)), re.MULTILINE)
    assert counted and shown and counted[2] == shown[1], "tree and show count alike"
    assert "c1 -> c2;" in printed(capsys, "tree", "r1", "--home", str(home), "--dot")
    assert "c1 --> c2" in printed(capsys, "tree", "r1", "--home", str(home), "--mermaid")


def test_a_diff_of_a_run_is_its_best_against_its_baseline(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "diff", "r1", "--home", str(home))
    assert text.startswith("# ≈ 100 µs sim -> ≈ 80.0 µs sim, 1.25x likely\n--- c1\n+++ c2\n")
    assert json.loads(printed(capsys, "diff", "c2", "c2", "--home", str(home), "--json"))["diff"] == []
    assert main(["diff", "c1", "--home", str(home)]) == 2


def test_a_runs_name_is_an_id_of_the_newest_run_that_has_it(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(home, tmp_path / "home")
    with closing(sqlite3.connect(tmp_path / "home" / "acceld.db", isolation_level=None)) as history:
        history.execute("UPDATE runs SET name = 'night'")
        newest = history.execute("SELECT max(id) FROM runs").fetchone()[0]
    at = ("--home", str(tmp_path / "home"))
    for words in (
        ["best", "--json"],
        ["tree", "--json"],
        ["costs", "--json"],
        ["show", "--json"],
        ["diff", "--json"],
        ["export", "--format", "md"],
    ):
        assert printed(capsys, words[0], "night", *words[1:], *at) == printed(
            capsys, words[0], f"r{newest}", *words[1:], *at
        )
    assert main(["tree", "nigth", *at]) == 2
    assert "'nigth' is not a run\n  write it as r12; acceld runs lists the runs" in capsys.readouterr().err


def test_insights_are_listed_and_one_is_shown(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = json.loads(printed(capsys, "insights", "--home", str(home), "--json"))["insights"]
    assert len(listed) == 2
    shown = printed(capsys, "insights", f"i{listed[0]['id']}", "--home", str(home))
    assert "strategy" in shown and "slow" in shown


def test_steering_without_a_daemon_says_so(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["pause", "r1"], ["pin", "c2"], ["hint", "r1", "fuse"], ["insights", "i1", "--pin"]):
        assert main([*words, "--home", str(home)]) == 3
    assert main(["pause", "nonsense", "--home", str(home)]) in (2, 3)


def test_without_a_terminal_the_json_twin_is_named(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attach", "--home", str(home)]) == 2
    assert "acceld runs --json" in capsys.readouterr().err


def test_a_comparison_says_after_how_many_candidates(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [line.split("  ")[0] for line in printed(capsys, "compare", "r1", "r2", "--home", str(home)).splitlines()]
    assert [row for row in rows if row.startswith("after ")] == ["after 1 candidate", "after 2 candidates"]


def test_moments() -> None:
    assert moment("2h", now=10_000.0) == 2_800.0
    assert moment("1970-01-02") == 86_400.0
    with pytest.raises(UsageError):
        moment("yesterday")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_names_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    script = printed(capsys, "completion", shell)
    assert all(name in script for name in COMMANDS)
    if shutil.which(shell):
        checked = subprocess.run([shell, "-n"], input=script, text=True, capture_output=True, check=False)
        assert checked.returncode == 0, checked.stderr


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_completes_a_command_and_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    script = printed(capsys, "completion", "bash")
    ask = 'COMP_WORDS=(acceld {}); COMP_CWORD={}; _acceld; echo "${{COMPREPLY[*]}}"'
    for words, place, wanted in (("run", 1, "runs"), ("runs --sav", 2, "--saved")):
        done = subprocess.run(
            ["bash", "-c", script + ask.format(words, place)], text=True, capture_output=True, check=False
        )
        assert done.stdout.split() == [wanted]


def test_the_man_page_has_every_command_and_is_taken_by_man(capsys: pytest.CaptureFixture[str]) -> None:
    page = printed(capsys, "completion", "man")
    assert page.startswith(".TH ACCELD 1") and all(f".SS {name}\n" in page for name in COMMANDS)
    if shutil.which("mandoc"):
        assert not subprocess.run(
            ["mandoc", "-T", "lint", "-W", "error"], input=page, text=True, check=False
        ).returncode


def test_values_are_completed_by_what_stands_before_them(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def offered(*words: str) -> list[str]:
        return printed(capsys, "completion", "values", *words).split()

    monkeypatch.setenv("ACCELD_HOME", str(home))
    assert "rmsnorm_matmul" in offered("optimize") and "r1" not in offered("optimize")
    assert "r1" in offered("tree") and "r1" in offered("show") and "c1" in offered("show")
    assert offered("optimize", "--", "--preset") == ["quick", "standard", "paper"]
    assert offered("no-such-command") == [] or offered("no-such-command") == [""]
    monkeypatch.setenv("ACCELD_HOME", str(home / "nowhere"))
    assert offered("tree") == []


def test_a_tie_is_not_put_over_a_file_unless_that_is_wanted(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place := tmp_path / "state").mkdir()
    tied, file = state_with_runs(place, 1, 90.0), tmp_path / "mine.py"
    file.write_text("def kernel(x):\n    return x\n")
    assert main(["apply", "r1", str(file), "--home", str(tied)]) == 2
    told = capsys.readouterr().err
    assert "c2 of r1 is no win: 1.11x tie (±34 %) over the baseline; nothing was written" in told
    assert "--even-if-tied" in told and [entry.name for entry in tmp_path.iterdir() if entry.is_file()] == ["mine.py"]
    found = json.loads(printed(capsys, "best", "r1", "--json", "--home", str(home)))
    assert (found["speedup"], found["improved"], found["tie_band"]) == (1.25, False, 34.0)
    assert found["verdict"] == "likely", "by the model, beyond 17 %"


@pytest.mark.parametrize("text", ["def kernel(x, y):\n    return x\n", "@jit\ndef kernel(x):\n    return x\n"])
def test_a_best_kernel_that_is_called_otherwise_is_not_put_over_a_file(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    assert main(["apply", "r1", str(file), "--even-if-tied", "--home", str(home)]) == 2
    assert "not a drop-in" in capsys.readouterr().err
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine.py"] and file.read_text() == text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["costs", "r9"], "there is no run r9\n  acceld runs lists the runs"),
        (["show", "c99"], "there is no candidate c99\n  acceld tree r12 lists the candidates of a run"),
        (["tree", "q"], "'q' is not a run\n  write it as r12; acceld runs lists the runs"),
        (["runs", "--state", "idle"], "invalid choice: 'idle'"),
        (["query", "select 1", "--limit", "0"], "argument --limit: 0 is less than 1\n  acceld query --help"),
        (["optimize", "silu", "--budget-usd", "-1"], "argument --budget-usd: -1 is less than 0"),
    ],
)
def test_an_error_is_one_line_with_what_to_do(
    home: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main([*words, "--home", str(home)]) == 2
    reported = capsys.readouterr()
    assert said in reported.err and "usage:" not in reported.err and not reported.out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_argument_says_what_it_is(command: str) -> None:
    silent = [action.option_strings or action.dest for action in parser_of(command)._actions if not action.help]
    assert not silent


def test_history_prints_runs_in_the_words_of_the_other_tables(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "runs", "--sort=-id", "--home", str(home))
    head = text.splitlines()[0]
    for word in ("run", "proposals by", "baseline", "best", "speed-up", "of peak"):
        assert word in head
    assert "_us" not in head and "proposer" not in head
    assert "r1 " in text


def test_a_share_above_the_peak_has_its_reason_in_show_and_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where, why = ("--home", str(home := state_with_runs(tmp_path))), "bove 100 %: the kernel makes products"

    def shown() -> list[bool]:
        page = tmp_path / "r1.html"
        main(["report", "r1", "-o", str(page), *where])
        words = (("show", "c2"), ("show", "r1"), ("report", "r1", "--md"))
        return [why in text for text in (page.read_text(), *(printed(capsys, *one, *where) for one in words))]

    assert not any(shown())
    with contextlib.closing(sqlite3.connect(home / "acceld.db")) as connection:
        connection.execute("UPDATE evaluations SET percent_of_peak = 107")
        connection.execute("UPDATE runs SET percent_of_peak_after = 107")
        connection.commit()
    assert all(shown())


def test_a_crossover_is_shown_with_its_second_parent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = state_with_runs(tmp_path)
    with contextlib.closing(sqlite3.connect(home / "acceld.db")) as connection:
        (child, plan) = connection.execute("SELECT best, c.plan FROM runs JOIN candidates c ON c.id = best").fetchone()
        connection.execute("UPDATE plans SET partner = 3 WHERE id = ?", (plan,))
        connection.commit()
    where = ("--home", str(home))
    shown = printed(capsys, "show", f"c{child}", *where)
    assert re.search(r"second parent +c3", shown) and "Widen (crossover with c3)" in shown
    assert "Widen (crossover with c3)" in printed(capsys, "show", "r1", *where)
    assert json.loads(printed(capsys, "show", f"c{child}", "--json", *where))["partner"] == 3
    assert "Widen (crossover with c3)" in printed(capsys, "export", "r1", "--format", "md", *where)
    assert "Widen (crossover with c3)" in printed(capsys, "tree", "r1", *where)
    listed = json.loads(printed(capsys, "tree", "r1", "--json", *where))["candidates"]
    assert [one["candidate"] for one in listed if one["partner"] == 3] == [child]
    assert f"c3 -> c{child} [style=dashed];" in printed(capsys, "tree", "r1", "--dot", *where)
    assert f"c3 -.-> c{child}" in printed(capsys, "tree", "r1", "--mermaid", *where)


def test_a_search_names_the_second_parent_of_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = state_with_runs(tmp_path)
    with contextlib.closing(sqlite3.connect(home / "acceld.db")) as connection:
        connection.execute("UPDATE plans SET partner = 3 WHERE title = 'Widen'")
        connection.commit()
    where = ("--home", str(home))
    assert "Widen (crossover with c3)" in printed(capsys, "runs", "--search", "Widen", *where)
    lines = printed(capsys, "runs", "--search", "Widen", "--jsonl", *where).splitlines()
    assert {hit["partner"] for hit in map(json.loads, lines) if hit["kind"] == "plan"} == {3}
