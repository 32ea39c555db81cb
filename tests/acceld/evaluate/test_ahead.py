"""The admission and the data sets of a strict gate are made before it, while a slot is free."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from acceld.errors import WorkloadError
from acceld.evaluate.correctness.admission import Admissions
from acceld.evaluate.interface import Priority
from acceld.evaluate.queue import SlotQueue
from acceld.evaluate.simulated.ahead import Ahead
from acceld.evaluate.simulated.evaluator import SimulatedEvaluator
from acceld.model import Gate, Status
from acceld.workloads import load_workload
from tests.acceld.evaluate.test_evaluator import CONFIG, WORKLOADS, request


class Pieces:
    """Pieces of work by name; one of them may wait, another one may fail."""

    def __init__(self, waits: str = "", fails: str = "") -> None:
        self.begun, self.ended, self.waits, self.fails = "", "", waits, fails
        self.release = asyncio.Event()

    async def piece(self, name: str) -> None:
        self.begun += name
        if name == self.waits:
            await self.release.wait()
        if name == self.fails:
            raise WorkloadError("no data")
        self.ended += name

    def ahead(self, idle: list[bool]) -> Ahead:
        return Ahead([partial(self.piece, name) for name in "abc"], lambda: idle[0])


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(300):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_a_piece_begins_only_while_a_slot_is_free() -> None:
    pieces, idle = Pieces(), [False]
    ahead = pieces.ahead(idle)
    await asyncio.sleep(0.05)
    assert not pieces.begun and not ahead.done
    idle[0] = True
    await until(lambda: ahead.done)
    assert pieces.ended == "abc"


async def test_the_piece_that_runs_is_finished_when_the_gate_begins() -> None:
    pieces = Pieces(waits="b")
    ahead = pieces.ahead([True])
    await until(lambda: pieces.begun == "ab")
    ahead.enough()
    pieces.release.set()
    await until(lambda: ahead.done)
    assert (pieces.begun, pieces.ended) == ("ab", "ab")


async def test_a_piece_that_fails_is_the_last_one() -> None:
    pieces = Pieces(fails="b")
    ahead = pieces.ahead([True])
    await until(lambda: ahead.done)
    assert (pieces.begun, pieces.ended) == ("ab", "a")


async def test_ending_ends_the_piece_that_runs() -> None:
    pieces = Pieces(waits="a")
    ahead = pieces.ahead([True])
    await until(lambda: pieces.begun == "a")
    await ahead.end()
    assert ahead.done and not pieces.ended


@pytest_asyncio.fixture
async def sharing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SimulatedEvaluator]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    evaluator = SimulatedEvaluator(CONFIG, tmp_path / "state", share_data=True)
    await evaluator.start()
    yield evaluator
    await evaluator.stop(1.0)


async def test_a_win_of_a_run_finds_the_admission_and_its_data_sets_made(
    sharing: SimulatedEvaluator, tmp_path: Path
) -> None:
    root = tmp_path / "acceld" / "datasets"
    loaded = load_workload(WORKLOADS / "st_matmul")
    assert (await sharing.evaluate(request(priority=Priority.BASELINE, run=5))).status is Status.PASSED
    (ahead,) = sharing._ahead.values()
    await until(lambda: ahead.done)
    assert Admissions(tmp_path / "state" / "floors").known(loaded) is not None
    made = {one.name for one in root.iterdir()}
    found = await sharing.evaluate(request(gate=Gate.STRICT, run=5))
    assert found.status is Status.PASSED and found.correctness is not None
    assert len(found.correctness.checks) > 15, "nothing is left out because it was made before"
    published = 5
    assert len({one.name for one in root.iterdir()} - made) <= published


async def test_nothing_is_made_ahead_for_a_kernel_outside_of_a_run(sharing: SimulatedEvaluator) -> None:
    await sharing.evaluate(request(priority=Priority.BASELINE))
    await sharing.evaluate(request(run=6))
    assert not sharing._ahead


async def test_an_earlier_run_gets_no_further_piece(
    sharing: SimulatedEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SlotQueue, "idle", property(lambda _: False))
    await sharing.evaluate(request(priority=Priority.BASELINE, run=5))
    (first,) = sharing._ahead.values()
    assert not first.done
    await sharing.evaluate(request(priority=Priority.BASELINE, run=6))
    await until(lambda: first.done)
    assert [key[0] for key, ahead in sharing._ahead.items() if not ahead.done] == [6]
