"""Kernels that a branch changed: annotations, a table, a budget; and the steps of the GitHub Action in a repository."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from acceld.cli.checks.branch import Allowance, command, former_lines, read_budgets
from acceld.cli.main import main
from acceld.errors import ConfigError
from tests.standin_neuron.machine import KERNEL, NARROW, small_silu

ROOT = Path(__file__).parents[3]
SLOW = KERNEL.replace("512", "8").replace("affine_range(4)", "affine_range(256)")
WRONG = KERNEL.replace("operand0=1.0", "operand0=1.5")


def git(folder: Path, *words: str) -> None:
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    environment = os.environ | who | {"GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(["git", *words], cwd=folder, env=environment, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository whose branch ``main`` has a workload and three kernels, and whose branch ``work`` begins
    there.
    """
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    small_silu(folder, NARROW)
    (folder / "kernels").mkdir()
    for name in ("kept.py", "slower.py", "wrong.py"):
        (folder / "kernels" / name).write_text(KERNEL)
    (folder / "tool.py").write_text("print(1)\n")
    (folder / "regressions.toml").write_text(
        'most_percent = 5.0\n[[kernel]]\npath = "kernels/*.py"\nworkload = "small_silu"\nmost_percent = 12.5\n'
    )
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "before")
    git(folder, "checkout", "-q", "-b", "work")
    return folder


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    return os.environ | {"XDG_CONFIG_HOME": str(tmp_path / "config"), "ACCELD_EVALUATE_SLOTS": "1", **more}


def steps() -> dict[str, str]:
    """Return the shell text of each step of the action, by name."""
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    found: dict[str, str] = {}
    for block in re.split(r"^    - name: ", text, flags=re.MULTILINE)[1:]:
        name, _, rest = block.partition("\n")
        reported = rest.partition("      run: ")[2]
        found[name] = reported.partition("|\n")[2] if reported.startswith("|") else reported
    return found


def test_the_actions_steps_annotate_comment_and_fail_on_regressions(repository: Path, tmp_path: Path) -> None:
    (repository / "kernels" / "slower.py").write_text(SLOW)
    (repository / "kernels" / "wrong.py").write_text(WRONG)
    (repository / "tool.py").write_text("print(2)\n")
    git(repository, "commit", "-qam", "after")
    runner = tmp_path / "runner"
    (runner / "acceld" / "bin").mkdir(parents=True)
    script = runner / "acceld" / "bin" / "acceld"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m acceld "$@"\n')
    script.chmod(0o755)
    inputs = {"AGAINST": "main", "BUDGET": "regressions.toml", "CHIP": "trn1", "NUMBER": "7"}
    github = {"RUNNER_TEMP": str(runner), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    posted = tmp_path / "gh"
    posted.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/posted\ncat "$5" >> {tmp_path}/posted\n')
    posted.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done, reported = (
        subprocess.run(
            ["bash", "-eo", "pipefail", "-c", steps()[step]],
            cwd=repository,
            env=environment(tmp_path, **inputs, **github, PATH=path, PYTHONPATH=str(ROOT)),
            capture_output=True,
            text=True,
            check=False,
        )
        for step in ("Verify changed kernels", "Comment")
    )
    assert done.returncode == 7, done.stderr
    assert reported.returncode == 0, reported.stderr
    lines = done.stdout.splitlines()
    assert any(
        re.match(r"::error file=kernels/wrong\.py,title=incorrect_numerical%3A tolerance::", line) for line in lines
    )
    slower = [line for line in lines if "kernels/slower.py" in line]
    assert re.match(
        r"::error file=kernels/slower\.py,title=slower than allowed::\+\d+\.\d % latency", slower[0].replace("%25", "%")
    )
    assert any(
        re.match(r"::warning file=kernels/slower\.py,line=\d+,title=cost of this line", line) for line in slower[1:]
    )
    assert not any("kept.py" in line or "tool.py" in line for line in lines)
    summary = (tmp_path / "summary.md").read_text()
    assert "| `kernels/slower.py` | passed |" in summary
    assert "+12.5 %" in summary
    comment = (tmp_path / "posted").read_text()
    assert comment.startswith("pr comment 7 --body-file")
    assert summary in comment


def test_a_faster_kernel_holds_and_nothing_changed_is_fine(repository: Path, tmp_path: Path) -> None:
    def ci() -> subprocess.CompletedProcess[str]:
        words = [
            sys.executable,
            "-m",
            "acceld",
            "check",
            "--changed",
            "--home",
            str(tmp_path / "state"),
            "--against",
            "main",
            "--annotate",
        ]
        done = subprocess.run(
            words,
            cwd=repository,
            env=environment(tmp_path, PYTHONPATH=str(ROOT)),
            capture_output=True,
            text=True,
            check=False,
        )
        return done

    nothing = ci()
    assert (nothing.returncode, nothing.stdout) == (0, "")
    (repository / "small_silu" / "kernel_legacy.py").write_text(KERNEL)
    git(repository, "commit", "-qam", "wider")
    faster = ci()
    assert faster.returncode == 0, faster.stdout + faster.stderr
    assert "::error" not in faster.stdout


def test_a_budget_names_kernels_and_percentages(tmp_path: Path) -> None:
    file = tmp_path / "regressions.toml"
    assert read_budgets(file) == []
    file.write_text('most_percent = 3\n[[kernel]]\npath = "a.py"\n[[kernel]]\npath = "b.py"\nmost_percent = 0\n')
    assert read_budgets(file) == [Allowance("a.py", None, 3.0), Allowance("b.py", None, 0.0)]
    for text, why in (
        ("most_precent = 3", "Did you mean 'most_percent'"),
        ("[[kernel]]\nworkload = 'x'", "path is missing, or path or workload is not a text"),
        ("[[kernel]]\npath = 'x'\nmost_percent = -1", "not a number of at least 0"),
        ("[[kernel]\n", "regressions.toml"),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError, match=why):
            read_budgets(file)


@pytest.mark.parametrize(
    "words, message",
    [
        (["--changed", "--max-regression", "0"], "--changed takes no --max-regression"),
        (["--changed", "--on", "device", "--workload", "silu"], "--changed takes no --workload, --on"),
        (["k.py", "--summary", "s.md", "--annotate"], "--annotate, --summary works only with --changed"),
    ],
)
def test_check_refuses_options_that_it_would_ignore(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *words]) == 2
    assert message in capsys.readouterr().err


def test_what_a_kernel_says_begins_no_command_of_its_own() -> None:
    reported = command("error", "100 %\n::set-env name=A::b", file="a,b:c.py", line=3, title="x\ny")
    assert reported == "::error file=a%2Cb%3Ac.py,line=3,title=x%0Ay::100 %25%0A::set-env name=A::b"
    assert "\n" not in reported


def test_an_edited_line_is_compared_with_the_line_it_replaces() -> None:
    old = "a\nb = load(x[0:64])\nc\nd\n"
    new = "a\nb = load(x[0:8])\nadded\nc\n  d\n"
    assert former_lines(old, new) == {1: 1, 2: 2, 4: 3, 5: 4}
    assert former_lines("a\nb\nc", "x\na\nc\ny") == {2: 1, 3: 3}
