"""The door: few commands at first, every command in one place, and the names of the version before."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from acceld.cli.former import FORMER, current_words
from acceld.cli.main import COMMANDS, arguments_of, main, overview, parser_of

FORMERLY = {
    "tui r1": "attach r1",
    "history": "runs --sort=-id",
    "history --json": "runs --json --sort=-id",
    "history --workload silu --sort -speedup": "runs --workload silu --sort -speedup",
    "history --saved best --csv": "runs --saved best --csv",
    "report r1 r2 -o page.html --redact": "export r1 r2 -o page.html --redact",
    "report r1 --md": "export r1 --format md",
    "report --png out r1": "export r1 --format png -o out",
    "report r1 --png=out": "export r1 --format png -o out",
    "report r1 --json": "export r1 --format json",
    "evaluate --jsonl a --out b --table --backend cpu": "profile --jsonl a --out b --table --backend cpu",
    "trust --history here --remove": "config trust --history here --remove",
    "selftest --only F*": "doctor selftest --only 'F*'",
    "db check --quick": "doctor database --quick",
    "check": "doctor config models prompts workloads",
    "check --json --home x": "doctor config models prompts workloads --json --home x",
    "check models --call": "doctor models --call",
    "check --admit silu": "doctor --admit silu",
    "verify r1 --on device --top 2": "check r1 --on device --top 2",
    "verify k.py --workload silu --against HEAD": "check k.py --workload silu --against HEAD",
    "verify --all": "check --all",
    "ci --against main --budget b.toml --annotate": "check --changed --against main --budget b.toml --annotate",
    "best r1 --apply k.py --even-if-tied": "apply r1 --even-if-tied k.py",
    "best --home x --apply=k.py r1": "apply --home x r1 k.py",
    "best silu --chip trn1 -o new.py": "apply silu --chip trn1 -o new.py",
    "best r1 --export one.py": "apply r1 --export one.py",
    "suite compare a.json b.json": "compare a.json b.json",
}
"""Command lines of the version before, and what they are now."""


@pytest.mark.parametrize(("line", "now"), FORMERLY.items())
def test_a_former_command_line_is_understood_and_names_the_new_one(line: str, now: str) -> None:
    name, *rest = shlex.split(line)
    words, message = current_words(name, rest)
    assert words == shlex.split(now)
    parsed = arguments_of(words[0], words[1:])
    assert getattr(parsed, "file", "k.py") in ("k.py", None)
    assert message.startswith(f"acceld {name} is now acceld {words[0]}") and "\n" not in message


@pytest.mark.parametrize("line", ["best r1 --json", "db backup", "check r1", "check k.py --nki 0.7", "suite run x"])
def test_a_current_command_line_is_left_as_it_is(line: str) -> None:
    name, *rest = line.split()
    assert current_words(name, rest) == (line.split(), "")


def test_a_former_name_does_the_same_work_with_one_line_on_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["config", "trust", "--list"]) == 0
    now = capsys.readouterr()
    assert main(["trust", "--list"]) == 0
    before = capsys.readouterr()
    assert before.out == now.out and now.err == ""
    assert before.err.splitlines() == [
        "acceld trust is now acceld config trust; this version still understands the old name"
    ]


def test_help_shows_few_commands_and_all_of_them_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    first = [name for name, command in COMMANDS.items() if command.first]
    assert 10 <= len(first) <= 13
    for every, names in ((False, first), (True, list(COMMANDS))):
        text = overview(every=every)
        assert sorted(line.split()[0] for line in text.splitlines() if line.startswith("  ")) == sorted(names)
        assert max(map(len, text.splitlines())) <= 120
    assert main(["--help"]) == 0 and "--help --all lists" in capsys.readouterr().out
    assert main(["--help", "--all"]) == 0 and "  completion " in capsys.readouterr().out


def test_each_command_has_one_place() -> None:
    own = [command.module for command in COMMANDS.values() if command.module != "steer"]
    assert len(own) == len(set(own))
    whole = {"ci", "evaluate", "history", "report", "selftest", "trust", "tui", "verify"}
    assert FORMER.keys() - COMMANDS.keys() == whole


def test_the_options_of_optimize_stand_in_groups() -> None:
    groups = [group for group in parser_of("optimize")._action_groups if group._group_actions]
    assert len(groups) >= 6 and max(len(group._group_actions) for group in groups) <= 8
