"""The teacher over a store: quota, strict gate, credit, merging, withdrawal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from acceld.model import (
    Abilities,
    Attempt,
    Candidate,
    Correctness,
    Evaluation,
    Failure,
    Gate,
    Insight,
    InsightKind,
    Kernel,
    Plan,
    Profile,
    RunSpec,
    Source,
    Status,
)
from acceld.model_calls import CallIntent, CallOutcome, Usage
from acceld.proposers.interface import (
    AttemptRequest,
    FirstRequest,
    FixRequest,
    PlanRequest,
    Problem,
    ProblemArgument,
    SummaryRequest,
)
from acceld.search.memory import Applicability, MemorySettings
from acceld.search.teacher import MemoryTeacher
from acceld.store.changes.calls import begin_call, end_call
from acceld.store.changes.insights import write_insight
from acceld.store.changes.runs import create_run
from acceld.store.changes.tree import write_candidate, write_plan
from acceld.store.database import Store
from acceld.store.reads.records import load_insights

PROBLEM = Problem(
    "silu",
    "silu",
    "def forward(x): ...",
    (ProblemArgument("x", (4,), "float32"),),
    "trn1",
    "nki_legacy",
    tags=("elementwise",),
)


def candidate(number: int, latency_us: float, plan: int | None = None, gate: Gate = Gate.SEARCH) -> Candidate:
    kernel = Kernel(f"kernel {number}", "nki_legacy")
    evaluation = Evaluation(
        Status.PASSED,
        kernel.sha256,
        program_sha256=f"p{number}",
        correctness=Correctness(gate, 1e-7, 2e-5),
        profile=Profile(
            Source.SIMULATED, "trn1", "nki_legacy", latency_us, "test", sdk="2.26", interval_percent=15.0, bound="DMA"
        ),
    )
    parent = None if plan is None else 1
    return Candidate(1, 1, kernel, parent, plan, order=(0, plan or 0, 0, 0), evaluation=evaluation, id=number)


class Summarizer:
    """A proposer that only summarizes; ``alike`` makes it write the same thing each time."""

    name = "scripted"
    abilities = Abilities(teaches=True)

    def __init__(self, alike: bool = False) -> None:
        self.alike = alike
        self.asked: list[SummaryRequest] = []

    async def first(self, request: FirstRequest) -> str | None:
        return None

    async def plan(self, request: PlanRequest) -> Plan | None:
        return None

    async def attempt(self, request: AttemptRequest) -> Attempt | None:
        return None

    async def fix(self, request: FixRequest) -> Attempt | None:
        return None

    async def summarize(self, request: SummaryRequest) -> Insight | None:
        self.asked.append(request)
        n = 0 if self.alike else request.rewrite.slow.id * 100 + request.rewrite.fast.id
        texts = (f"title{n}", f"strategy{n} words{n}", f"slow{n}", f"fast{n}")
        return Insight(*texts, request.rewrite.speedup, InsightKind.POSITIVE)


ROOT = candidate(1, 100.0)
CITED = {"cited": [1]}
PLANS = [
    Plan(1, 1, 1, n, f"idea{n} text{n}", insights=(1,) if n < 4 else (), id=n, data=CITED if n < 3 else {})
    for n in range(1, 21)
]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await asyncio.to_thread(Store.open, tmp_path / "acceld.db")
    yield opened
    await opened.close()


async def write_tree(store: Store, plans: Sequence[Plan] = PLANS) -> None:
    """Write run 1 with its baseline, the plans and one candidate of each."""
    await store.change(create_run, RunSpec("silu"))
    await store.change(write_candidate, ROOT)
    for plan in plans:
        await store.change(write_plan, plan)
        await store.change(write_candidate, candidate(plan.id + 1, 1.0, plan.id))


async def kept(store: Store) -> list[Insight]:
    """Return every insight, oldest first."""
    return (await store.read(load_insights, withdrawn=True))[::-1]


def teacher(store: Store, summarizer: Summarizer, **changes: Any) -> MemoryTeacher:
    settings = replace(MemorySettings("fifo"), **changes)
    where = Applicability(1, "trn1", "nki_legacy")
    return MemoryTeacher(1, PROBLEM, settings, store=store, proposer=summarizer, where=where)


async def strictly(candidate: Candidate) -> Candidate:
    evaluation = candidate.evaluation
    assert evaluation is not None and evaluation.correctness is not None
    return replace(
        candidate, evaluation=replace(evaluation, correctness=replace(evaluation.correctness, gate=Gate.STRICT))
    )


async def test_eight_insights_at_most_half_of_them_positive(store: Store) -> None:
    summarizer = Summarizer()
    await write_tree(store)
    children = [candidate(n + 1, 40.0 + n, n) for n in range(1, 11)] + [
        candidate(n + 1, 200.0 + n, n) for n in range(11, 21)
    ]
    await teacher(store, summarizer).learn(1, [ROOT, *children], strictly)
    book = await kept(store)
    kinds = [entry.kind for entry in book]
    assert kinds == [InsightKind.POSITIVE] * 4 + [InsightKind.NEGATIVE] * 4
    assert book[0].speedup == 100 / 41 and book[0].fast_candidate == 2
    negative = book[4]
    assert (negative.slow_candidate, negative.fast_candidate, negative.speedup) == (21, 1, 2.2)
    first = book[0]
    assert (first.chip, first.sdk, first.bound, first.tags) == ("trn1", "2.26", "DMA", ("elementwise",))
    assert first.source is Source.SIMULATED and first.run == 1 and first.iteration == 1


async def test_only_what_passes_the_strict_gate_teaches(store: Store) -> None:
    summarizer = Summarizer()
    await write_tree(store)

    async def certify(asked: Candidate) -> Candidate:
        if asked.id == 2:
            failure = Failure("tolerance", "wrong on row_scaled")
            assert asked.evaluation is not None
            failed = Evaluation(Status.INCORRECT_NUMERICAL, asked.evaluation.source_sha256, failure=failure)
            return replace(asked, evaluation=failed)
        return await strictly(asked)

    await teacher(store, summarizer).learn(1, [ROOT, candidate(2, 10.0, 1), candidate(3, 80.0, 2)], certify)
    assert [entry.fast_candidate for entry in await kept(store)] == [3]
    assert all(request.rewrite.fast.id != 2 for request in summarizer.asked)


async def test_plans_are_credited_with_what_came_of_them(store: Store) -> None:
    older = Insight("older", "s", "slow", "fast", 1.5, InsightKind.POSITIVE)
    await store.change(write_insight, older)
    await write_tree(store)
    children = [candidate(2, 50.0, 1), candidate(3, 150.0, 2), candidate(4, 50.0, 3)]
    await teacher(store, Summarizer()).learn(1, [ROOT, *children], strictly)
    found = await store.read(load_insights)
    assert [(one.wins, one.losses) for one in found if one.title == "older"] == [(1, 1)]
    ratios = "SELECT plan, outcome, ratio FROM insight_uses ORDER BY plan"
    booked = await store.read(lambda connection: [tuple(row) for row in connection.execute(ratios)])
    assert booked == [(1, "win", 2.0), (2, "loss", 100 / 150), (3, None, None)], "plan 3 was shown it and cites nothing"


async def test_a_tie_is_neither_a_win_nor_a_loss_of_an_insight(store: Store) -> None:
    await store.change(write_insight, Insight("older", "s", "slow", "fast", 1.5, InsightKind.POSITIVE))
    await write_tree(store)
    children = [candidate(2, 90.0, 1), candidate(3, 120.0, 2)]
    await teacher(store, Summarizer()).learn(1, [ROOT, *children], strictly)
    assert {(one.wins, one.losses) for one in await store.read(load_insights)} == {(0, 0)}
    booked = await store.read(
        lambda c: [row[0] for row in c.execute("SELECT outcome FROM insight_uses WHERE plan < 3")]
    )
    assert booked == ["tie", "tie"]


async def test_a_pair_whose_summary_was_merged_or_empty_is_not_bought_again(store: Store) -> None:
    await write_tree(store)
    for slow, fast in ((1, 2), (1, 3)):
        tags = {"run": 1, "iteration": 1, "slow": slow, "fast": fast}
        asked = CallIntent("k", "summarizer", "m", "p", "0" * 64, "s", "u", 0, 0.0, tags=tags)
        number = await store.change(begin_call, replace(asked, key=f"{slow} {fast}"))
        await store.change(end_call, number, CallOutcome("answered", Usage(), text="NONE"))
    summarizer = Summarizer()
    pairs = [candidate(2, 50.0, 1), candidate(3, 60.0, 2), candidate(4, 40.0, 3)]
    await teacher(store, summarizer).learn(1, [ROOT, *pairs], strictly)
    assert [(one.rewrite.slow.id, one.rewrite.fast.id) for one in summarizer.asked] == [(1, 4)]


async def test_insights_that_say_the_same_are_merged(store: Store) -> None:
    await write_tree(store)
    taught = teacher(store, Summarizer(alike=True))
    await taught.learn(1, [ROOT, candidate(2, 50.0, 1), candidate(3, 60.0, 2)], strictly)
    assert len(await kept(store)) == 1 and taught.merged == 1


async def test_an_iteration_summarized_again_after_a_restart_teaches_nothing_twice(store: Store) -> None:
    summarizer = Summarizer()
    await write_tree(store)
    for _ in range(2):
        await teacher(store, summarizer).learn(1, [ROOT, candidate(2, 50.0, 1)], strictly)
    assert len(await kept(store)) == len(summarizer.asked) == 1


async def test_a_suspect_candidate_takes_its_insights_with_it(store: Store) -> None:
    await write_tree(store)
    taught = teacher(store, Summarizer())
    await taught.learn(1, [ROOT, candidate(2, 50.0, 1), candidate(3, 60.0, 2)], strictly)
    assert await taught.withdraw(2) == [1]
    assert [entry.id for entry in await taught.shown(2)] == [2]


async def test_off_asks_no_summarizer(store: Store) -> None:
    summarizer = Summarizer()
    await write_tree(store)
    quiet = teacher(store, summarizer, policy="off")
    await quiet.learn(1, [ROOT, candidate(2, 50.0, 1)], strictly)
    assert not summarizer.asked and not await kept(store) and await quiet.shown(2) == ()


async def test_the_planner_learns_that_plans_repeat(store: Store) -> None:
    plans = [Plan(1, 1, 1, n, "swap the loops", id=n + 1) for n in range(4)]
    await write_tree(store, plans)
    taught = teacher(store, Summarizer())
    assert taught.notes() == ()
    await taught.learn(1, [ROOT], strictly)
    assert "75%" in taught.notes()[0]
