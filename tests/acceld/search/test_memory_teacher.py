"""The teacher over a store in memory: quota, strict gate, credit, merging, withdrawal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from acceld.model import (
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
    Source,
    Status,
)
from acceld.proposers.interface import AttemptRequest, FirstRequest, FixRequest, PlanRequest, Problem, SummaryRequest
from acceld.search.memory import Applicability, MemorySettings
from acceld.search.teacher import MemoryTeacher

PROBLEM = Problem("silu", "silu", "def forward(x): ...", ("x f32",), "trn1", "nki_legacy", tags=("elementwise",))


def candidate(number: int, latency_us: float, plan: int | None = None, gate: Gate = Gate.SEARCH) -> Candidate:
    kernel = Kernel(f"kernel {number}", "nki_legacy")
    evaluation = Evaluation(
        Status.PASSED,
        kernel.sha256,
        program_sha256=f"p{number}",
        correctness=Correctness(gate, 1e-7, 2e-5),
        profile=Profile(Source.SIMULATED, "trn1", "nki_legacy", latency_us, "test", sdk="2.26", bound="DMA"),
    )
    parent = None if plan is None else 1
    return Candidate(5, 1, kernel, parent, plan, order=(0, plan or 0, 0, 0), evaluation=evaluation, id=number)


class Notebook:
    """A store in memory."""

    def __init__(self, plans: list[Plan]) -> None:
        self.kept: list[Insight] = []
        self.credits: list[tuple[int, bool, float | None]] = []
        self._plans = plans

    async def insights(self, *, withdrawn: bool = False, limit: int = 1000) -> list[Insight]:
        return [i for i in reversed(self.kept) if withdrawn or not i.withdrawn][:limit]

    async def plans(self, run: int, iteration: int | None = None) -> list[Plan]:
        return self._plans

    async def write_insight(self, insight: Insight) -> Insight:
        self.kept.append(replace(insight, id=len(self.kept) + 1))
        return self.kept[-1]

    async def change_insight(self, insight: int, what: str, **values: Any) -> None:
        assert what == "withdrawn"
        self.kept[insight - 1] = replace(self.kept[insight - 1], withdrawn=True)

    async def credit_plan(self, plan: int, won: bool, speedup: float | None) -> None:
        self.credits.append((plan, won, speedup))


class Summarizer:
    """A proposer that only summarizes; ``alike`` makes it write the same thing each time."""

    name = "scripted"
    repairs = False
    teaches = True

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
PLANS = [Plan(5, 1, 1, n, f"idea{n} text{n}", insights=(1,) if n < 3 else (), id=n) for n in range(1, 21)]


def teacher(book: Notebook, summarizer: Summarizer, **changes: Any) -> MemoryTeacher:
    settings = replace(MemorySettings("fifo"), **changes)
    where = Applicability(5, "trn1", "nki_legacy")
    return MemoryTeacher(5, PROBLEM, settings, store=book, proposer=summarizer, where=where)


async def strictly(candidate: Candidate) -> Candidate:
    evaluation = candidate.evaluation
    assert evaluation is not None and evaluation.correctness is not None
    return replace(
        candidate, evaluation=replace(evaluation, correctness=replace(evaluation.correctness, gate=Gate.STRICT))
    )


async def test_eight_insights_at_most_half_of_them_positive() -> None:
    book, summarizer = Notebook(PLANS), Summarizer()
    children = [candidate(n + 1, 40.0 + n, n) for n in range(1, 11)] + [
        candidate(n + 1, 200.0 + n, n) for n in range(11, 21)
    ]
    await teacher(book, summarizer).learn(1, [ROOT, *children], strictly)
    kinds = [entry.kind for entry in book.kept]
    assert kinds == [InsightKind.POSITIVE] * 4 + [InsightKind.NEGATIVE] * 4
    assert book.kept[0].speedup == 100 / 41 and book.kept[0].fast_candidate == 2
    negative = book.kept[4]
    assert (negative.slow_candidate, negative.fast_candidate, negative.speedup) == (21, 1, 2.2)
    first = book.kept[0]
    assert (first.chip, first.sdk, first.bound, first.tags) == ("trn1", "2.26", "DMA", ("elementwise",))
    assert first.source is Source.SIMULATED and first.run == 5 and first.iteration == 1


async def test_only_what_passes_the_strict_gate_teaches() -> None:
    book, summarizer = Notebook(PLANS), Summarizer()

    async def certify(asked: Candidate) -> Candidate:
        if asked.id == 2:
            failure = Failure("tolerance", "wrong on row_scaled")
            assert asked.evaluation is not None
            failed = Evaluation(Status.INCORRECT_NUMERICAL, asked.evaluation.source_sha256, failure=failure)
            return replace(asked, evaluation=failed)
        return await strictly(asked)

    await teacher(book, summarizer).learn(1, [ROOT, candidate(2, 10.0, 1), candidate(3, 80.0, 2)], certify)
    assert [entry.fast_candidate for entry in book.kept] == [3]
    assert all(request.rewrite.fast.id != 2 for request in summarizer.asked)


async def test_plans_are_credited_with_what_came_of_them() -> None:
    book = Notebook(PLANS)
    children = [candidate(2, 50.0, 1), candidate(3, 120.0, 2), candidate(4, 50.0, 3)]
    await teacher(book, Summarizer()).learn(1, [ROOT, *children], strictly)
    assert book.credits == [(1, True, 2.0), (2, False, 100 / 120)]


async def test_insights_that_say_the_same_are_merged() -> None:
    book = Notebook(PLANS)
    taught = teacher(book, Summarizer(alike=True))
    await taught.learn(1, [ROOT, candidate(2, 50.0, 1), candidate(3, 60.0, 2)], strictly)
    assert len(book.kept) == 1 and taught.merged == 1


async def test_an_iteration_summarized_again_after_a_restart_teaches_nothing_twice() -> None:
    book, summarizer = Notebook(PLANS), Summarizer()
    for _ in range(2):
        await teacher(book, summarizer).learn(1, [ROOT, candidate(2, 50.0, 1)], strictly)
    assert len(book.kept) == len(summarizer.asked) == 1


async def test_a_suspect_candidate_takes_its_insights_with_it() -> None:
    book = Notebook(PLANS)
    taught = teacher(book, Summarizer())
    await taught.learn(1, [ROOT, candidate(2, 50.0, 1), candidate(3, 60.0, 2)], strictly)
    assert await taught.withdraw(2) == [1]
    assert [entry.id for entry in await taught.shown(2)] == [2]


async def test_off_asks_no_summarizer() -> None:
    book, summarizer = Notebook(PLANS), Summarizer()
    quiet = teacher(book, summarizer, policy="off")
    await quiet.learn(1, [ROOT, candidate(2, 50.0, 1)], strictly)
    assert not summarizer.asked and not book.kept and await quiet.shown(2) == ()


async def test_the_planner_is_told_when_plans_repeat() -> None:
    plans = [Plan(5, 1, 1, n, "swap the loops", id=n + 1) for n in range(4)]
    taught = teacher(Notebook(plans), Summarizer())
    assert taught.notes() == ()
    await taught.learn(1, [ROOT], strictly)
    assert "75%" in taught.notes()[0]
