"""Saves through the tiers, with a scripted judge; the files and the watch are real."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from acceld.errors import DeviceError, UsageError
from acceld.model import WRITTEN_OUT, Check, Correctness, Evaluation, Failure, Gate, Kernel, Profile, Source, Status
from acceld.watch.apply import apply, backup_of, check_drop_in, restore, seen, seen_as
from acceld.watch.deltas import deltas
from acceld.watch.policy import Policy
from acceld.watch.rebase import rebased
from acceld.watch.tiers import SaveResult, Watched, first_line
from acceld.watch.watcher import Watcher

SOURCE = "def kernel(x):\n    rows = {rows}\n    out = x\n    return out\n"


def profile(latency_us: float, hbm: float = 1e6, notes: tuple[str, ...] = ()) -> Profile:
    counters = {"hbm_read_bytes": hbm, "instruction_count": 10.0}
    return Profile(
        Source.SIMULATED,
        "trn1",
        "nki_legacy",
        latency_us,
        "compiler_legacy",
        interval_percent=12.0,
        counters=counters,
        engines_us={"dma": latency_us / 2},
        notes=notes,
    )


class Scripted:
    """Latency is ten times the number of rows; zero rows can not be traced; 13 rows are wrong."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Gate]] = []
        self.evaluated_by: dict[int, str] = {}

    async def __call__(self, watched: Watched, kernel: Kernel, gate: Gate) -> Evaluation:
        rows = int(kernel.text.split("rows = ")[1].split()[0])
        self.evaluated_by[rows] = watched.workload
        self.asked.append((str(rows), gate))
        if rows == 0:
            return Evaluation(Status.COMPILE_ERROR, kernel.sha256, failure=Failure("partition_limit", "no rows", 2))
        timed = profile(10.0 * rows, hbm=1e6 * rows)
        if gate is Gate.TIMING:
            return Evaluation(Status.UNTESTED, kernel.sha256, profile=timed)
        if rows == 13:
            return Evaluation(Status.INCORRECT_NUMERICAL, kernel.sha256, failure=Failure("tolerance", "0.3 off"))
        right = Correctness(Gate.SEARCH, 1e-7, 2e-5, checks=(Check("own/seed 0", True),))
        return Evaluation(Status.PASSED, kernel.sha256, correctness=right, profile=timed)


class Runs:
    """Counts searches."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.cancelled: list[int] = []

    def reachable(self) -> bool:
        return True

    async def start(self, watched: Watched, kernel: Kernel, usd: float | None) -> int:
        self.started.append(kernel.text)
        return len(self.started)

    async def cancel(self, run: int) -> None:
        self.cancelled.append(run)


class Session:
    def __init__(
        self, watcher: Watcher, evaluator: Scripted, runs: Runs, steps: list[SaveResult], watched: Watched
    ) -> None:
        self.watcher, self.evaluator, self.runs, self.steps, self.watched = watcher, evaluator, runs, steps, watched

    async def after(self, stage: str, count: int = 1) -> list[SaveResult]:
        """Wait until ``stage`` has been reported ``count`` times."""
        for _ in range(6000):
            if sum(step.stage == stage for step in self.steps) >= count:
                return self.steps
            await asyncio.sleep(0.05)
        raise AssertionError(f"no {stage}: {[step.stage for step in self.steps]}")

    async def save(self, rows: int, stage: str = "correct", count: int = 1) -> list[str]:
        """Save another number of rows; return the stages of that save."""
        self.steps.clear()
        self.watched.path.write_text(SOURCE.format(rows=rows))
        return [step.stage for step in await self.after(stage, count)]


class Chip:
    """Takes twenty microseconds a row, twice the prediction; seven rows do not compile, nine rows find no device."""

    async def __call__(self, watched: Watched, kernel: Kernel, gate: Gate) -> Evaluation:
        rows = int(kernel.text.split("rows = ")[1].split()[0])
        if rows == 7:
            return Evaluation(Status.COMPILE_ERROR, kernel.sha256, failure=Failure("NCC_1", "odd rows", 3))
        if rows == 9:
            raise DeviceError("every core is taken")
        timed = replace(profile(20.0 * rows), source=Source.MEASURED, interval_percent=1.0)
        if gate is Gate.TIMING:
            return Evaluation(Status.UNTESTED, kernel.sha256, profile=timed)
        right = Correctness(Gate.SEARCH, 1e-7, 2e-5, checks=(Check("own/seed 0", True),))
        return Evaluation(Status.PASSED, kernel.sha256, correctness=right, profile=timed)


@asynccontextmanager
async def watching(
    tmp_path: Path, policy: Policy | None = None, device: Chip | None = None, contract: tuple[Path, ...] = ()
) -> AsyncIterator[Session]:
    file = tmp_path / "kernel.py"
    file.write_text(SOURCE.format(rows=8))
    steps: list[SaveResult] = []
    evaluator, runs = Scripted(), Runs()
    watched = Watched(file, "nki_legacy", contract=contract)
    report: Callable[[SaveResult], None] = steps.append
    watcher = Watcher([watched], evaluator, report, policy=policy, optimizer=runs, quiet_s=0.05, device=device)
    task = asyncio.create_task(watcher.run())
    session = Session(watcher, evaluator, runs, steps, watched)
    try:
        await session.after("correct")
        await asyncio.sleep(0.3)
        yield session
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_on_a_chip_a_save_is_compiled_checked_and_measured(tmp_path: Path) -> None:
    async with watching(tmp_path, device=Chip()) as session:
        stages = await session.save(4, "ask")
        at = stages.index("correct")
        assert stages[at:] == ["correct", "compiled", "correct_on_device", "measured", "disagrees", "ask"]
        found = {step.stage: step for step in session.steps}
        assert found["measured"].good and found["measured"].text.startswith("160 µs -> 80.0 µs trn1 ±1.00 %, 2.00x")
        assert "-50 % off" in found["disagrees"].text and found["disagrees"].data["predicted_us"] == 40.0
        stages = await session.save(7, "compile_error")
        assert "measured" not in stages and session.steps[-1].text == "line 3: odd rows"
        stages = await session.save(9, "ask")
        assert stages[-2:] == ["no_device", "ask"], "what could not be measured still stands as predicted"


async def test_figures_are_held_against_the_save_before_even_where_that_was_wrong(tmp_path: Path) -> None:
    async with watching(tmp_path) as session:
        await session.save(13, "incorrect_numerical")
        await session.save(8, "seen")
        await session.save(16, "correct")
        predicted = next(step for step in session.steps if step.stage == "predicted")
        assert predicted.text.startswith("80.0 µs -> ")


async def test_a_save_is_timed_compared_and_then_checked(tmp_path: Path) -> None:
    async with watching(tmp_path) as session:
        stages = await session.save(4, "ask")
        assert stages == ["legal", "delta", "delta", "predicted", "correct", "ask"]
        predicted = next(step for step in session.steps if step.stage == "predicted")
        assert predicted.good and "80.0 µs -> ≈ 40.0 µs sim trn1 ±12 %, 2.00x" in predicted.text
        assert "read from HBM 8.0 MB -> 4.0 MB (-50 %) against the last save" in [step.text for step in session.steps]
        assert session.evaluator.asked[-2:] == [("4", Gate.TIMING), ("4", Gate.SEARCH)]


async def test_a_comment_costs_nothing_and_going_back_is_known(tmp_path: Path) -> None:
    async with watching(tmp_path) as session:
        session.evaluator.asked.clear()
        session.steps.clear()
        session.watched.path.write_text(SOURCE.format(rows=8) + "# a note\n")
        await session.after("unchanged")
        assert session.evaluator.asked == []
        await session.save(4)
        asked = len(session.evaluator.asked)
        assert await session.save(8, "seen") == ["seen"]
        assert len(session.evaluator.asked) == asked


async def test_what_is_broken_stops_at_its_tier_with_its_line(tmp_path: Path) -> None:
    async with watching(tmp_path) as session:
        session.steps.clear()
        session.watched.path.write_text("def kernel(x:\n")
        assert "line 1" in (await session.after("syntax"))[0].text
        assert await session.save(0, "compile_error") == ["compile_error"]
        assert session.steps[0].text == "line 2: no rows"
        assert (await session.save(13, "incorrect_numerical"))[-1] == "incorrect_numerical"
        assert session.runs.started == []


async def test_a_file_that_is_gone_is_said_and_watched_until_it_is_back(tmp_path: Path) -> None:
    async with watching(tmp_path) as session:
        session.steps.clear()
        session.watched.path.rename(tmp_path / "elsewhere.py")
        (gone,) = await session.after("gone")
        assert gone.good is False and gone.text.startswith("kernel.py was deleted, moved or renamed")
        assert "correct" in await session.save(4)


def test_the_first_line_of_a_failure_fits_a_terminal() -> None:
    message = "output 0 of [128, 512] is wrong: relative L2 error 3.1e-01, tolerance 2.0e-05, at row 3; seed 4 too"
    head, rest = first_line(message)
    assert len(head) <= 72 and head.startswith("output 0 of [128, 512] is wrong") and rest.endswith("seed 4 too")
    assert first_line("short") == ("short", "") and first_line("a\nb\n c") == ("a", "b c")


async def test_auto_searches_within_its_caps_and_a_newer_save_ends_the_older_search(tmp_path: Path) -> None:
    policy = Policy("auto", runs_per_hour=9)
    async with watching(tmp_path, policy) as session:
        assert len(session.runs.started) == 1
        assert (await session.save(4, "not_optimized"))[-1] == "not_optimized"
        policy._starts.clear()
        await session.save(2, "optimizing")
        assert session.runs.cancelled == [1] and len(session.runs.started) == 2


async def test_an_earlier_win_is_carried_over_to_the_edit_before_anything_is_spent(tmp_path: Path) -> None:
    async with watching(tmp_path) as session:
        base = SOURCE.format(rows=8)
        session.watched.best = (base, base.replace("rows = 8", "rows = 2"))
        session.steps.clear()
        session.watched.path.write_text(base.replace("out = x", "out = x + 0"))
        carried = next(step for step in await session.after("carried") if step.stage == "carried")
        assert carried.good and "4.00x" in carried.text
        assert "+    rows = 2" in carried.data["diff"]


def test_the_change_of_a_win_moves_with_the_lines_around_it() -> None:
    base, best = "a\nb\nc\n", "a\nB\nB2\nc\n"
    assert rebased(base, best, "new\na\nb\nc\nend\n") == "new\na\nB\nB2\nc\nend\n"
    assert rebased(base, best, "a\nother\nc\n") is None
    assert rebased(base, "a\nb\nx\nc\n", "a\nb\nc\n") == "a\nb\nx\nc\n"


def test_profiles_of_different_chips_are_not_compared() -> None:
    from dataclasses import replace

    assert deltas(profile(1.0), replace(profile(2.0), chip="trn2")) == ()


def test_caps_hold() -> None:
    policy = Policy("ask", runs_per_hour=2, usd_per_save=1.0, usd_per_hour=10.0)
    assert policy.refusal(0.0) == ""
    policy.started(0.0)
    assert "less than 10 s" in policy.refusal(5.0)
    policy.started(20.0)
    assert "in the last hour" in policy.refusal(100.0)
    assert policy.refusal(3700.0) == ""
    assert "used up" in Policy(usd_per_save=6.0).refusal(0.0)


def test_apply_keeps_a_backup_and_refuses_a_file_that_changed(tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text("old\n")
    sha256 = hashlib.sha256(b"old\n").hexdigest()
    backup = apply(file, "new\n", sha256)
    assert (file.read_text(), backup.read_text()) == ("new\n", "old\n")
    with pytest.raises(UsageError, match="has changed since"):
        apply(file, "newer\n", sha256)
    assert file.read_text() == "new\n"


def test_a_file_keeps_its_line_ends_and_its_mark(tmp_path: Path) -> None:
    file, content = tmp_path / "kernel.py", b"\xef\xbb\xbfold = 1\r\nother = 2\r\n"
    file.write_bytes(content)
    backup = apply(file, "new = 1\nother = 2\n", seen_as(file, "old = 1\nother = 2\n"))
    assert file.read_bytes() == b"\xef\xbb\xbfnew = 1\r\nother = 2\r\n" and backup.read_bytes() == content
    restore(file, backup, seen(file))
    assert file.read_bytes() == content and [one.name for one in tmp_path.iterdir()] == ["kernel.py"]
    with pytest.raises(UsageError, match="has changed since"):
        seen_as(file, "another = 1\n")


def test_a_link_with_the_name_of_the_copy_is_replaced_and_not_followed(tmp_path: Path) -> None:
    file, other = tmp_path / "kernel.py", tmp_path / "other"
    file.write_text("old\n")
    other.write_text("mine\n")
    backup_of(file, seen(file)).symlink_to(other)
    backup = apply(file, "new\n", seen(file))
    assert (file.read_text(), backup.read_text(), other.read_text()) == ("new\n", "old\n", "mine\n")
    assert not backup.is_symlink()


def test_a_file_that_is_saved_while_its_copy_is_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, move = tmp_path / "kernel.py", os.replace
    file.write_text("old\n")

    def saved_meanwhile(source: Path, target: Path) -> None:
        move(source, target)
        file.write_text("edited\n")

    monkeypatch.setattr(os, "replace", saved_meanwhile)
    with pytest.raises(UsageError, match="has changed since"):
        apply(file, "new\n", seen(file))
    assert file.read_text() == "edited\n" and not list(tmp_path.glob("*.acceld-part"))


OWN = "import numpy as np\nimport neuronxcc.nki.language as nl\nTILE = 128\n\n@jit\ndef kernel(x):\n    return x\n"


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        (("import numpy as np\n", ""), r"imports differ: np \(numpy\)"),
        (("neuronxcc.nki.language as nl", "neuronxcc.nki.isa as nl"), "imports differ: nl"),
        (("@jit\n", ""), "decorators"),
        (("def kernel(x)", "def kernel(x, y)"), "arguments"),
        (("TILE = 128\n", "_TILE = 128\n"), "does not define TILE"),
    ],
)
def test_a_kernel_that_offers_less_than_the_file_is_no_drop_in(
    tmp_path: Path, change: tuple[str, str], reported: str
) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(OWN)
    check_drop_in(file, Kernel("import math\n" + OWN.replace("return x", "return -x"), "nki_legacy", "kernel"))
    with pytest.raises(UsageError, match=reported):
        check_drop_in(file, Kernel(OWN.replace(*change), "nki_legacy", "kernel"))
    with pytest.raises(UsageError, match=r"the kernel is a \.c file"):
        check_drop_in(file, Kernel("void kernel(float *out) { }", "c", "kernel", filename="kernel.c"))
    plain = f'"""kernel, {WRITTEN_OUT}."""\n' + OWN.replace("x", "y")
    with pytest.raises(
        UsageError, match="written out from a trace for the workload's shapes alone, so it does not replace"
    ):
        check_drop_in(file, Kernel(plain, "nki_legacy", "kernel"), 7)


async def test_files_of_one_name_are_each_evaluated_by_their_own_workload(tmp_path: Path) -> None:
    evaluator, files = Scripted(), []
    for rows, workload in ((3, "silu"), (4, "rope")):
        file = tmp_path / workload / "kernel.py"
        file.parent.mkdir()
        file.write_text(SOURCE.format(rows=rows))
        files.append(Watched(file, "nki_legacy", workload))
    watcher = Watcher(files, evaluator, lambda step: None)
    watcher.start()
    await watcher.settled()
    assert evaluator.evaluated_by == {3: "silu", 4: "rope"}


async def test_a_save_during_a_pause_is_evaluated_after_the_pause(tmp_path: Path) -> None:
    async with watching(tmp_path) as session:
        session.steps.clear()
        session.watcher.toggle_pause()
        session.watched.path.write_text(SOURCE.format(rows=4))
        for _ in range(6000):
            if session.watched.path in session.watcher._missed:
                break
            await asyncio.sleep(0.02)
        assert session.watcher.paused and session.steps == []
        session.watcher.toggle_pause()
        await session.after("correct")
        assert session.evaluator.asked[-1] == ("4", Gate.SEARCH)


async def test_a_changed_interface_is_named(tmp_path: Path) -> None:
    reference = tmp_path / "reference.py"
    reference.write_text("def forward(x):\n    return x\n")
    async with watching(tmp_path, contract=(tmp_path / "workload.toml", reference)) as session:
        session.steps.clear()
        reference.write_text("def forward(x):\n    return x + 0\n")
        found = {step.stage: step.text for step in await session.after("correct")}
        assert found["interface"].startswith("reference.py or workload.toml changed")
        session.steps.clear()
        session.watched.path.write_text(SOURCE.format(rows=4).replace("kernel(x)", "kernel(x, y)"))
        found = {step.stage: step.text for step in await session.after("correct")}
        assert found["interface"].startswith("the signature changed")


def test_the_first_line_of_a_failure_is_not_cut_inside_of_brackets() -> None:
    head, rest = first_line("own: output 0: relative L2 error 1.72 exceeds 1e-05; worst at [171, 891]: expected 10.67")
    assert head == "own: output 0: relative L2 error 1.72 exceeds 1e-05"
    assert rest == "worst at [171, 891]: expected 10.67"


def test_a_change_is_exact_only_if_its_figure_follows_from_the_program() -> None:
    classes = {"figure_class": {"instructions": "exact", "hbm_read_bytes": "modelled"}}
    before = replace(profile(80.0, hbm=1e6), details=classes)
    after = replace(before, counters={"hbm_read_bytes": 2e6, "instruction_count": 20.0})
    assert {one.name: one.exact for one in deltas(before, after)} == {
        "hbm_read_bytes": False,
        "instruction_count": True,
    }
