"""Rewrites that change the same confirm one insight, whatever words a summarizer would find for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from acceld.model import Candidate, Insight, InsightKind, Kernel, Plan, RunSpec
from acceld.proposers.interface import SummaryRequest
from acceld.search.effects import SAME, effect_of, similarity
from acceld.search.memory import Applicability, MemorySettings
from acceld.search.teacher import MemoryTeacher
from acceld.store.changes.runs import create_run
from acceld.store.changes.tree import write_candidate, write_evaluation, write_plan
from acceld.store.database import Store
from acceld.store.reads.records import load_insights
from tests.acceld.search.test_memory_teacher import PROBLEM, Summarizer, candidate, strictly, teacher

PARAPHRASES = (
    ("Let the exponential add up its row", "Ask activation for a running total, which saves the second pass."),
    ("Sum inside the scalar engine", "Use accumulate registers while applying exp, so vector stays idle."),
    ("Merge reduction with nonlinear step", "Whenever a reduction follows, combine both instructions."),
    ("One sweep rather than two", "Avoid touching data twice by producing sums on the fly."),
)
"""The same lesson in words that have little in common."""

SLOW = "s = nisa.activation(op=nl.exp, data=x)\nt = nisa.tensor_reduce(op=nl.add, data=s)\n"
FUSED = "s = nisa.activation_reduce(op=nl.exp, data=x, reduce_op=nl.add)\n"
MOVED = "s = nisa.activation(op=nl.exp, data=x)\nt = nisa.tensor_reduce(op=nl.add, data=s, engine=nisa.engine.gpsimd)\n"
BUSY = {"vector": 90.0, "scalar": 40.0, "gpsimd": 0.0}
FUSION = {"vector": 45.0, "scalar": 41.0, "gpsimd": 0.0}
MOVE = {"vector": 45.0, "scalar": 40.0, "gpsimd": 60.0}


def kernel(
    number: int, latency_us: float, text: str, engines_us: dict[str, float], plan: int | None = None
) -> Candidate:
    """Return a candidate whose text has a comment of its own."""
    made = candidate(number, latency_us, plan)
    assert made.evaluation is not None and made.evaluation.profile is not None
    profile = replace(made.evaluation.profile, engines_us=engines_us, counters={"instruction_count": latency_us})
    source = Kernel(f"{text}# {number}\n", "nki_legacy")
    return replace(
        made, kernel=source, evaluation=replace(made.evaluation, profile=profile, source_sha256=source.sha256)
    )


ROOT = kernel(1, 100.0, SLOW, BUSY)


class Paraphrasing(Summarizer):
    """A summarizer that says the same in other words each time."""

    async def summarize(self, request: SummaryRequest) -> Insight | None:
        self.asked.append(request)
        title, strategy = PARAPHRASES[(len(self.asked) - 1) % len(PARAPHRASES)]
        return Insight(title, strategy, "two passes", "one pass", request.rewrite.speedup, InsightKind.POSITIVE)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await asyncio.to_thread(Store.open, tmp_path / "acceld.db")
    yield opened
    await opened.close()


async def written(store: Store, made: Candidate) -> Candidate:
    """Store a candidate with its evaluation."""
    assert made.evaluation is not None
    await store.change(write_candidate, made)
    await store.change(write_evaluation, made, made.evaluation, "silu", "simulator", "trn1", made.kernel.sha256)
    return made


async def grown(store: Store, plans: int, change: str = "fusion") -> None:
    """Write run 1 with its baseline and plans of one change class."""
    await store.change(create_run, RunSpec("silu"))
    await written(store, ROOT)
    for number in range(1, plans + 1):
        await store.change(write_plan, Plan(1, 1, 1, number, f"idea {number}", "text", change_class=change))


async def child(store: Store, plan: int, text: str = FUSED, engines_us: dict[str, float] = FUSION) -> Candidate:
    """Write the candidate of a plan."""
    return await written(store, kernel(plan + 1, 50.0 + plan, text, engines_us, plan))


async def test_paraphrases_of_one_change_are_bought_once_and_confirm_one_insight(store: Store) -> None:
    await grown(store, 6)
    summarizer, children = Paraphrasing(), [await child(store, plan) for plan in range(1, 7)]
    taught = teacher(store, summarizer)
    for iteration in (1, 2, 3):
        await taught.learn(iteration, [ROOT, *children[: 2 * iteration]], strictly)
    assert len(summarizer.asked) == 1, "six rewrites changed the same"
    (one,) = await store.read(load_insights)
    assert one.confirmations == 5 and one.held[0].times == 6
    assert sorted(one.held[0].by) == [child.id for child in children[1:]]


async def test_a_run_that_goes_on_counts_no_rewrite_twice(store: Store) -> None:
    await grown(store, 3)
    children = [await child(store, plan) for plan in range(1, 4)]
    for _ in range(2):  # the second teacher stands for a daemon that was started again
        await teacher(store, Paraphrasing()).learn(1, [ROOT, *children], strictly)
    (one,) = await store.read(load_insights)
    assert one.confirmations == 2


async def test_another_change_of_the_same_class_teaches_an_insight_of_its_own(store: Store) -> None:
    await grown(store, 2, "mixed")
    summarizer = Paraphrasing()
    children = [await child(store, 1), await child(store, 2, MOVED, MOVE)]
    await teacher(store, summarizer).learn(1, [ROOT, *children], strictly)
    assert len(summarizer.asked) == 2 and len(await store.read(load_insights)) == 2


async def test_an_insight_of_another_run_is_confirmed_with_its_place(store: Store) -> None:
    await grown(store, 1)
    await teacher(store, Paraphrasing()).learn(1, [ROOT, await child(store, 1)], strictly)
    await store.change(create_run, RunSpec("rmsnorm"))
    root = replace(kernel(3, 300.0, SLOW, {name: 3 * busy for name, busy in BUSY.items()}), run=2)
    await written(store, root)
    await store.change(write_plan, Plan(2, 1, root.id, 1, "idea", "text", change_class="fusion"))
    made = replace(kernel(4, 160.0, FUSED, {name: 3 * busy for name, busy in FUSION.items()}, 2), run=2, parent=3)
    await written(store, made)
    summarizer = Paraphrasing()
    problem, where = replace(PROBLEM, workload="rmsnorm"), Applicability(2, "trn1", "nki_legacy")
    other = MemoryTeacher(2, problem, MemorySettings("value"), store=store, proposer=summarizer, where=where)
    await other.learn(1, [root, made], strictly)
    (one,) = await store.read(load_insights)
    assert not summarizer.asked
    assert [(place.workload, place.times) for place in one.held] == [("silu", 1), ("rmsnorm", 1)]


def test_what_can_not_be_told_is_not_taken_for_the_same() -> None:
    fused = kernel(2, 50.0, FUSED, FUSION)
    assert effect_of(ROOT, fused, "") is None, "a plan without a class"
    assert effect_of(ROOT, kernel(2, 99.0, SLOW, BUSY), "fusion") is None, "figures that differ by less than a tenth"
    assert effect_of(ROOT, candidate(2, 50.0), "fusion") is not None
    one, other = effect_of(ROOT, fused, "fusion"), effect_of(ROOT, kernel(3, 55.0, FUSED, FUSION), "fusion")
    moved, engine = effect_of(ROOT, kernel(4, 55.0, MOVED, MOVE), "fusion"), effect_of(ROOT, fused, "engine")
    assert one is not None and other is not None and moved is not None and engine is not None
    assert similarity(one, other) == 1.0
    assert similarity(one, moved) < SAME and similarity(one, engine) == 0.0
