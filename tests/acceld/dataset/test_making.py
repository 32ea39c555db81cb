"""A data set is made whole, the same twice, also if it was killed meanwhile; its card says what is in its files."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from acceld.cli.main import main
from acceld.dataset import making
from acceld.dataset.files import FORMATS, SPLITS, allotted
from acceld.dataset.journal import FILE, Journal
from acceld.dataset.programs import FAMILIES, drawn
from acceld.dataset.records import Member, Program, Rejected
from acceld.errors import UsageError, WorkloadError
from acceld.gains import gain
from acceld.model import Evaluation, Status
from acceld.report.datasets import three_way_split

SEED = 155
PROGRAMS = 2
WORDS = ["--programs", str(PROGRAMS), "--pairs", "9", "--seed", str(SEED), "--jobs", "2"]
QUICKER = {"PLAINER": making.PLAINER[:1], "TRIES": {1: 2}, "OTHER_TRIES": 1}
"""Fewer kernels a program than the command makes, so that a test takes seconds."""
CHILD = """
import sys
from acceld.cli.main import main
from acceld.dataset import making
making.PLAINER, making.TRIES, making.OTHER_TRIES = making.PLAINER[:1], {1: 2}, 1
sys.exit(main(["dataset", "make", *sys.argv[1:]]))
"""
CUT = """
import os
import signal
import sys
from acceld.dataset.journal import Journal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent in the background of a shell ignores it
how, code = int(sys.argv.pop(1)), sys.argv.pop(1)
add = Journal.add
def cut(*given, **named):
    add(*given, **named)
    (os.killpg if how == 9 else os.kill)(os.getpid(), how)
Journal.add = cut
exec(code)
"""
"""Runs the program that is its second argument, and sends itself a signal after each program of the data set."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a small data set."""
    folder = tmp_path_factory.mktemp("made") / "data"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder.parent)
        for name, value in QUICKER.items():
            patch.setattr(making, name, value)
        assert main(["dataset", "make", folder.name, *WORDS]) == 0
    return folder


def rows(folder: Path, name: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of a format by split."""
    return {
        part: [json.loads(line) for line in (folder / name / f"{part}.jsonl").read_text("utf-8").splitlines()]
        for part in SPLITS
    }


def programs(folder: Path) -> list[Program]:
    """Return the finished programs."""
    with sqlite3.connect(folder / FILE) as connection:
        basis = dict(connection.execute("select name, value from basis"))
    with Journal(folder, basis) as journal:
        return list(journal.programs())


def files(folder: Path) -> dict[str, bytes]:
    """Return the content of what is published: the card, and all rows."""
    found = [folder / "README.md", *folder.glob("*/*.jsonl")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_every_member_is_right_on_data_and_every_fast_one_is_certainly_faster(made: Path) -> None:
    known = {(one.name, member.text): member for one in programs(made) for member in one.members}
    pairs = [row for part in rows(made, "pairs").values() for row in part]
    assert pairs
    for row in pairs:
        slow, fast = known[row["workload"], row["slow"]].evaluation, known[row["workload"], row["fast"]].evaluation
        for one in (slow, fast):
            assert one.status is Status.PASSED and one.correctness is not None and one.correctness.passed
            assert one.correctness.has_reference and one.correctness.rel_l2 <= one.correctness.tolerance
        found = gain(slow.profile, fast.profile)
        assert found is not None and found.improved and found.ratio == row["speedup"]
        assert row["source"] == "simulated"


def test_programs_are_split_by_their_formula(made: Path) -> None:
    split = {one.name: three_way_split(one.formula_sha256) for one in programs(made)}
    for name in FORMATS[:2]:
        for part, found in rows(made, name).items():
            assert all(split[row["workload"]] == part for row in found)


def test_the_card_counts_what_the_files_hold(made: Path) -> None:
    card = (made / "README.md").read_text("utf-8")
    for name in FORMATS:
        counts = [len(part) for part in rows(made, name).values()]
        assert f"| {name} | {' | '.join(map(str, counts))} |" in card
    done = programs(made)
    families = Counter(one.family for one in done if one.made)
    (line,) = re.findall(r"^\| programs \| (.*) \|$", card, re.MULTILINE)
    assert Counter(map(int, line.split(" | "))) == Counter([families[name] for name in FAMILIES])
    pairs = sum(map(len, rows(made, "pairs").values()))
    assert f"{PROGRAMS} programs and {pairs} slow-fast pairs" in card and "simulated" in card
    assert f"({sum(len(one.members) for one in done)} of these programs)" in card


def test_a_reference_stands_beside_its_kernels(made: Path) -> None:
    references = {one.name: one.reference for one in programs(made)}
    found = [row for part in rows(made, "numpy-nki").values() for row in part]
    assert {row["workload"] for row in found} == set(references)
    assert all(row["numpy"] == references[row["workload"]] and "@nki.jit" in row["nki"] for row in found)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_data_set_that_was_cut_off_goes_on_and_ends_with_the_same_bytes(
    how: signal.Signals, made: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    command = [sys.executable, "-c", CHILD, str(folder), *WORDS]
    first = subprocess.run(
        [sys.executable, "-c", CUT, str(int(how)), *command[2:-1], "1"],
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
    )
    if how is signal.SIGKILL:
        assert first.returncode == -how
    else:
        assert first.returncode == 130
        assert "the same command continues with them" in first.stderr
        assert not (folder / ".work").exists()
    kept = finished(folder)
    assert 1 <= len(kept) < PROGRAMS
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"{len(kept)} of {PROGRAMS} programs are made already" in done.stderr
    assert {number: record for number, record in finished(folder).items() if number in kept} == kept
    assert files(folder) == files(made)


def finished(folder: Path) -> dict[int, tuple[str, float]]:
    """Return the finished programs, with how long one took, which would differ if it were made again."""
    if not (folder / FILE).exists():
        return {}
    with sqlite3.connect(folder / FILE) as connection:
        try:
            return {
                n: (text, s) for n, text, s in connection.execute("select number, record, checking_s from programs")
            }
        except sqlite3.OperationalError:
            return {}


def test_a_folder_goes_on_with_its_own_seed_only(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(made)
    assert main(["dataset", "make", str(made), "--programs", "1", "--pairs", "1", "--seed", "77"]) == 2
    assert f"was begun with seed {SEED}, not 77" in capsys.readouterr().err
    assert files(made) == before


def test_a_folder_of_something_else_is_not_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("mine", "utf-8")
    assert main(["dataset", "make", str(tmp_path), "--programs", "1"]) == 2
    assert "no data set that acceld began" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("words", [["--programs", "0"], ["--pairs", "-1"], ["--jobs", "-2"]])
def test_numbers_that_make_no_sense_are_refused(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dataset", "make", str(tmp_path / "new"), *words]) == 2
    assert words[0] in capsys.readouterr().err and not (tmp_path / "new").exists()


def test_a_cause_that_every_program_fails_of_ends_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(path: Path) -> None:
        raise WorkloadError("numpy is broken")

    monkeypatch.setattr(making, "reference_facts", broken)
    monkeypatch.setattr(making, "MOST_FAILED", 3)
    assert main(["dataset", "make", str(tmp_path / "data"), *WORDS]) == 1
    assert (
        "none of the first 3 programs could be made" in (said := capsys.readouterr().err) and "numpy is broken" in said
    )


def test_two_processes_do_not_work_in_one_folder(tmp_path: Path) -> None:
    with Journal(tmp_path / "data", {"seed": "0"}), pytest.raises(UsageError, match="another acceld works"):
        Journal(tmp_path / "data", {"seed": "0"})


def test_a_program_that_fails_is_kept_with_its_reason(tmp_path: Path) -> None:
    one = drawn(0, 0)
    failed = Rejected("not_lowered", "line 3: np.sort is not lowered")
    program = Program(0, one.name, one.family, one.size, one.formula_sha256, one.text, rejected=(failed,))
    with Journal(tmp_path / "data", {"seed": "0"}) as journal:
        journal.add(program, {"lowering": 1.0})
        assert journal.numbers() == {0: False} and journal.pairs() == {} and list(journal.programs()) == [program]
        assert journal.seconds() == {"lowering": 1.0, "checking": 0.0, "rewriting": 0.0}


def test_pairs_are_taken_of_all_programs_alike() -> None:
    assert allotted({1: 9, 2: 1, 3: 4}, 8) == {1: 4, 2: 1, 3: 3}
    assert allotted({1: 2, 2: 1}, 8) == {1: 2, 2: 1}


def test_rules_made_a_kernel_of_another_only_if_its_steps_go_on(made: Path) -> None:
    reported: Evaluation = programs(made)[0].members[0].evaluation
    lowered = Member("a", 1, (), (), reported)
    once, twice = (Member("b", 1, ("x",) * n, ("hoist",) * n, reported) for n in (1, 2))
    assert twice.rules_since(lowered) == ("hoist", "hoist") and twice.rules_since(once) == ("hoist",)
    assert once.rules_since(twice) is None and Member("c", 0, ("x",), ("hoist",), reported).rules_since(lowered) is None
