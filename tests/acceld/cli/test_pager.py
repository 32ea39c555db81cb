"""Long answers go through a pager on a terminal, and nowhere else."""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from acceld.cli.pager import pager_of

PAGER = "import sys; text = sys.stdin.read(); print('PAGED', len(text.splitlines()) > 3, text.isascii())"


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({}, ["less"]),
        ({"PAGER": "more -s"}, ["more", "-s"]),
        ({"PAGER": "more", "ACCELD_PAGER": "less -S"}, ["less", "-S"]),
        ({"PAGER": ""}, []),
        ({"PAGER": "cat"}, []),
        ({"PAGER": "more", "ACCELD_PAGER": "cat"}, []),
        ({"TERM": "dumb"}, []),
    ],
)
def test_the_pager_is_chosen_as_git_chooses_its_own(environ: dict[str, str], words: list[str]) -> None:
    assert pager_of(environ) == words


def on_a_terminal(folder: Path, *words: str, **environ: str) -> tuple[str, int]:
    """Return what a command prints on a terminal of its own, and its exit code."""
    ours, theirs = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if "PAGER" not in name} | {"TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-m", "acceld", *words],
        cwd=folder,
        env=kept | environ,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # Linux: the last process with the terminal has ended
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    return shown.decode(), process.wait(timeout=300)


@pytest.fixture
def pager(tmp_path: Path) -> str:
    """Return a pager that records that it was used."""
    file = tmp_path / "pager.py"
    file.write_text(PAGER)
    return shlex.join([sys.executable, str(file)])


def test_a_long_answer_goes_through_the_pager(tmp_path: Path, pager: str) -> None:
    assert on_a_terminal(tmp_path, "workloads", PAGER=pager) == ("PAGED True False\r\n", 0)


@pytest.mark.parametrize("words", [("workloads", "--no-pager"), ("doctor", "--help")])
def test_what_asks_for_none_gets_none(tmp_path: Path, pager: str, words: tuple[str, ...]) -> None:
    shown, _ = on_a_terminal(tmp_path, *words, PAGER=pager)
    assert shown and "PAGED" not in shown


def test_an_error_keeps_its_exit_code_and_a_pager_that_is_missing_changes_nothing(tmp_path: Path, pager: str) -> None:
    shown, code = on_a_terminal(tmp_path, "workloads", "no-such-workload", PAGER=pager)
    assert code == 2 and "no workload" in shown
    shown, code = on_a_terminal(tmp_path, "workloads", PAGER="no-such-pager")
    assert code == 0 and "matmul" in shown


def test_a_person_who_leaves_the_pager_early_sees_no_error(tmp_path: Path) -> None:
    shown, code = on_a_terminal(tmp_path, "workloads", PAGER="head -n 1")
    assert code == 0 and len(shown.splitlines()) == 1


def test_a_pipe_gets_the_plain_answer(tmp_path: Path, pager: str) -> None:
    environ = os.environ | {"PAGER": pager}
    done = subprocess.run(
        [sys.executable, "-m", "acceld", "workloads"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "matmul" in done.stdout and "PAGED" not in done.stdout
