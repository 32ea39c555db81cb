"""Insights of one run are shown by default to a run of another kernel, chip and API, marked with where they held."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from acceld import figures
from acceld.daemon.specs import memory_policy
from acceld.model import (
    Attempt,
    Candidate,
    Evaluation,
    Held,
    Insight,
    InsightKind,
    Kernel,
    Plan,
    Profile,
    RunState,
    Source,
    Status,
)
from acceld.proposers.interface import Problem
from acceld.proposers.llm.presentation import insight_lines
from acceld.search.memory import Applicability, MemorySettings
from acceld.search.teacher import MemoryTeacher
from acceld.store.changes.insights import credit_plan, write_insight
from acceld.store.changes.runs import set_run_state
from acceld.store.changes.tree import write_attempt, write_candidate, write_plan
from acceld.store.database import Store
from acceld.store.reads import listing
from acceld.store.reads.records import load_insights
from tests.acceld.search.test_memory_teacher import (
    PROBLEM,
    ROOT,
    Summarizer,
    candidate,
    store,
    strictly,
    teacher,
    write_tree,
)
from tests.store import records

__all__ = ["store"]

SOFTMAX = "row = nisa.tensor_reduce(nl.max, s)\np = nisa.activation(op=nl.exp, data=s)\no = nisa.nc_matmul(p, v)"
VALUE = MemorySettings("value")


def parent(text: str, chip: str, api: str, bound: str) -> Candidate:
    """Return a kernel that is to be improved."""
    profile = Profile(Source.SIMULATED, chip, api, 900.0, "test", bound=bound)
    evaluation = Evaluation(Status.UNTESTED, "", program_sha256="p", profile=profile)
    return Candidate(2, 1, Kernel(text, api), None, evaluation=evaluation, id=99)


async def test_a_second_run_on_another_kernel_and_chip_is_shown_a_fitting_insight(store: Store) -> None:
    await write_tree(store)
    await teacher(store, Summarizer()).learn(1, [ROOT, candidate(2, 50.0, 1)], strictly)
    (learned,) = await store.read(load_insights)
    assert learned.held == (Held("trn1", "nki_legacy", "silu", Source.SIMULATED, 2.0),)
    policy = memory_policy("auto", "llm", beam_width=4)
    where = Applicability(2, "trn2", "nki", tags=("attention",))
    other = Problem("gqa_full", "attention", "", (), "trn2", "nki")
    second = MemoryTeacher(2, other, MemorySettings(policy), store=store, proposer=Summarizer(), where=where)
    (shown,) = await second.shown(1, [parent(SOFTMAX, "trn2", "nki", "DMA 90 %")])
    assert shown.id == learned.id and shown.title.endswith("(not tried on trn2 with nki yet)")
    text = insight_lines([shown], 0)
    assert "held on trn1 silu (nki_legacy, simulated)" in text and "2.00 times as fast" in text


def lesson(title: str, bound: str, *operations: str) -> Insight:
    """Return an insight of a run on trn1."""
    place = Held("trn1", "nki_legacy", "softmax", Source.SIMULATED, 1.5)
    return Insight(
        title, "s", "", "", 1.5, InsightKind.POSITIVE, run=1, chip="trn1", api="nki_legacy", bound=bound,
        operations=operations, held=(place,), change="fusion",
    )  # fmt: skip


async def test_the_insight_that_fits_the_second_kernel_comes_first(store: Store) -> None:
    await write_tree(store)
    await store.change(write_insight, lesson("Fold the exponential", "vector 80 %", "exponential", "matmul"))
    await store.change(write_insight, lesson("Gather by rows", "DMA 95 %", "gather"))
    settings, where = MemorySettings("value", capacity=1), Applicability(2, "trn2", "nki")
    second = MemoryTeacher(2, PROBLEM, settings, store=store, proposer=Summarizer(), where=where)
    (shown,) = await second.shown(1, [parent(SOFTMAX, "trn2", "nki", "vector 71 %")])
    assert shown.title.startswith("Fold the exponential")


async def test_what_is_learned_again_confirms_the_older_insight(store: Store) -> None:
    await write_tree(store)
    taught = teacher(store, Summarizer(alike=True))
    await taught.learn(1, [ROOT, candidate(2, 50.0, 1), candidate(3, 60.0, 2)], strictly)
    (one,) = await store.read(load_insights)
    assert one.confirmations == 1 and one.held[0].times == 2 and one.held[0].speedup == 2.0
    (row,) = await store.read(listing.insight_rows)
    assert row["confirmations"] == 1 and row["held"][0]["workload"] == "silu"
    assert "held on trn1 silu (nki_legacy, simulated, 2 times)" in insight_lines([one], 0)


async def test_a_tie_of_the_simulator_teaches_a_hypothesis_with_its_band(store: Store) -> None:
    await write_tree(store)
    summarizer = Summarizer()
    children = [candidate(number + 1, 92.0 - number, number) for number in range(1, 5)]
    await teacher(store, summarizer).learn(1, [ROOT, *children], strictly)
    found = await store.read(load_insights)
    assert len(found) == 2 and all(one.tie_percent == 17.0 for one in found), "at most two hypotheses an iteration"
    assert "hypothesis: made a kernel perhaps 1.1" in insight_lines(found, 0)


@pytest.mark.parametrize("written", ["", "# Mine\n\n- Never transpose twice.\n"])
async def test_planners_read_a_person_s_playbook_in_place_of_the_distilled_one(
    store: Store, tmp_path: Path, written: str
) -> None:
    path = tmp_path / "playbook.md"
    if written:
        path.write_text(written, encoding="utf-8")
    await write_tree(store)
    known = MemoryTeacher(
        1, PROBLEM, VALUE, store=store, proposer=Summarizer(alike=True),
        where=Applicability(1, "trn1", "nki_legacy"), playbook=path,
    )  # fmt: skip
    await known.learn(1, [ROOT, candidate(2, 50.0, 1), candidate(3, 60.0, 2)], strictly)
    (rule,) = await known.playbook()
    if written:
        assert rule == "- Never transpose twice."
    else:
        assert rule.startswith(
            "Where dma is the bottleneck (class mixed): title0 [2 rewrites on trn1"
        ) and rule.endswith("i1]")
    assert f"Playbook, rules that hold for many kernels:\n{rule}" in insight_lines((), 0, (rule,))


async def test_the_playbook_of_a_run_that_measures_has_rules_of_simulations_only_if_asked(store: Store) -> None:
    await write_tree(store)
    for title in ("Fold the exponential", "Fold the sum"):
        await store.change(write_insight, lesson(title, "vector 80 %", "exponential"))
    where = Applicability(2, "trn2", "nki", source=Source.MEASURED)
    for asked in (False, True):
        settings = MemorySettings("value", show_simulated=asked)
        measuring = MemoryTeacher(2, PROBLEM, settings, store=store, proposer=Summarizer(), where=where)
        assert len(await measuring.playbook()) == asked


@pytest.mark.parametrize("policy", ["fifo", "random"])
async def test_the_papers_policies_are_shown_no_rules_of_other_runs_but_a_person_s(
    store: Store, tmp_path: Path, policy: str
) -> None:
    await write_tree(store)
    for title in ("Fold the exponential", "Fold the sum"):
        await store.change(write_insight, lesson(title, "vector 80 %", "exponential"))
    path, where = tmp_path / "playbook.md", Applicability(2, "trn1", "nki_legacy")
    settings = MemorySettings(policy)
    asked = MemoryTeacher(2, PROBLEM, settings, store=store, proposer=Summarizer(), where=where, playbook=path)
    assert await asked.playbook() == ()
    path.write_text("- Never transpose twice.\n", encoding="utf-8")
    assert await asked.playbook() == ("- Never transpose twice.",)


async def made(store: Store, latencies: list[float], cites: int = 0) -> int:
    """Return a finished run by models whose candidates had these latencies; the plan of the last one cites an insight."""
    run, baseline = await records.begin(store, replace(records.SPEC, proposer="llm"))
    for number, latency_us in enumerate(latencies):
        insights = (cites,) if cites and number == len(latencies) - 1 else ()
        wanted = Plan(
            run.id, 1, baseline.id, number, f"way {number}", insights=insights, data={"cited": list(insights)}
        )
        plan = await store.change(write_plan, wanted)
        attempt = await store.change(write_attempt, Attempt(plan.id, 0, f"# {run.id} {number}\n"))
        child = Candidate(
            run.id, 1, replace(baseline.kernel, text=attempt.text or ""), baseline.id, plan.id, attempt.id,
            order=(0, number, 0, 0),
        )  # fmt: skip
        written = await store.change(write_candidate, child)
        await records.evaluate(store, written, records.passed(latency_us))
        if insights:
            await store.change(credit_plan, plan.id, True, 100.0 / latency_us, insights)
    await store.change(set_run_state, run.id, RunState.FINISHED, "done")
    return run.id


async def test_what_memory_did_is_counted_against_runs_without_it(store: Store) -> None:
    lesson_id = (await store.change(write_insight, records.insight(0))).id
    await made(store, [90.0, 95.0, 88.0, 70.0, 49.0])
    await made(store, [90.0, 91.0, 92.0, 93.0, 94.0, 95.0, 96.0])
    await made(store, [90.0, 50.0], cites=lesson_id)
    (row,) = await store.read(listing.insight_rows)
    assert row["saved"] == {"candidates": 5, "runs": 2}, "7 candidates in the median of runs without it, 2 with it"
    assert (await store.read(listing.insight_row, lesson_id))["saved"] == row["saved"]
    said = figures.memory_did(row)
    assert said == f"i{lesson_id}: shown 1 time, 1 win of 1 tried, saved 5 candidates against 2 runs without it"
    alone = figures.memory_did(row | {"saved": None})
    assert alone.endswith("1 win of 1 tried; no run without it to compare with")
