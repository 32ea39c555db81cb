"""The search's decisions do not depend on what finishes first; it repeats no work and shows no untested kernel as best."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from acceld.evaluate.interface import EvaluationRequest
from acceld.events import BestChanged, CandidateEvaluated
from acceld.model import ADMISSION, Attempt, Evaluation, Failure, Gate, Plan, RunState, Status
from acceld.proposers.interface import AttemptRequest, PlanRequest
from acceld.search.control import RunControl
from acceld.search.outcome import outcome
from acceld.search.replay import differences, recording
from acceld.store.connection import connect_reader
from acceld.store.database import Store
from acceld.store.reads import listing
from acceld.store.reads.records import load_candidate, load_candidates, load_events, load_plans, load_run
from tests.acceld.search.conftest import (
    BreaksDown,
    ListedProposer,
    RepairingProposer,
    ScriptedEvaluator,
    SearchMaker,
    kernel_text,
    new_run,
)

FACTORS = [1.1, 0.9, 0.8, 0.95, 0.7]


async def decisions(store: Store, run: int) -> list[tuple[int, str, str]]:
    """Return the decisions: each candidate's iteration, text and status, in the order of places."""
    candidates = await store.read(load_candidates, run)
    ordered = sorted(candidates, key=lambda c: (c.iteration, c.order, c.kernel.text))
    return [(c.iteration, c.kernel.text, c.evaluation.status if c.evaluation else "") for c in ordered]


def timed(decided: list[tuple[int, str, str]]) -> list[tuple[int, str, str]]:
    """Return the decisions with one status for all timed candidates, run on data or not."""
    return [(i, text, Status.UNTESTED if status == Status.PASSED else status) for i, text, status in decided]


async def best_latency(store: Store, run: int) -> float | None:
    record = await store.read(load_run, run)
    assert record.best is not None
    best = await store.read(load_candidate, record.best)
    assert best.evaluation is not None
    return best.evaluation.latency_us


async def test_a_run_finds_the_best_of_what_is_proposed(store: Store, search_for: SearchMaker) -> None:
    run = await new_run(store, patience=0)
    state = await search_for(run, ScriptedEvaluator(), ListedProposer(FACTORS)).run()
    assert state is RunState.FINISHED
    assert await best_latency(store, run.id) == pytest.approx(100 * 0.8 * 0.8 * 0.8)
    record = await store.read(load_run, run.id)
    summary = outcome(
        record, await store.read(load_candidates, run.id), {p.id: p for p in await store.read(load_plans, run.id)}
    )
    assert summary.speedup == pytest.approx(1 / 0.512) and summary.improved
    assert set(summary.counts) == set(Status)
    assert [win.speedup for win in summary.wins] == [pytest.approx(1.25)] * 3


async def test_what_finishes_first_changes_no_decision(store: Store, search_for: SearchMaker) -> None:
    results = []
    for seed in (1, 2, 3):
        run = await new_run(store, seed=7)
        await search_for(run, ScriptedEvaluator(seed, delay_s=0.01), ListedProposer(FACTORS)).run()
        results.append(await decisions(store, run.id))
    assert results[0] == results[1] == results[2]
    assert len(results[0]) > 10


async def test_only_what_could_enter_the_beam_is_run_on_data(store: Store, search_for: SearchMaker) -> None:
    run, evaluator = await new_run(store, iterations=1), ScriptedEvaluator()
    await search_for(run, evaluator, ListedProposer([0.5, 0.6, 0.9])).run()
    statuses = {
        c.kernel.text.split()[1]: c.evaluation.status for c in await store.read(load_candidates, run.id) if c.evaluation
    }
    assert statuses["90.0"] is Status.UNTESTED and statuses["50.0"] is Status.PASSED
    assert sum("/strict/" in key for key in evaluator.done) == 1


async def test_what_fails_the_strict_gate_never_becomes_best(store: Store, search_for: SearchMaker) -> None:
    run = await new_run(store, iterations=1)
    await search_for(run, ScriptedEvaluator(), ListedProposer([0.1, 0.9, 1.2], ["shaky", "", "wrong"])).run()
    assert await best_latency(store, run.id) == 90.0
    events = [event.data for event in await store.read(load_events, run=run.id)]
    assert [data.latency_us for data in events if isinstance(data, BestChanged)] == [100.0, 90.0]


async def test_nothing_is_evaluated_twice(store: Store, search_for: SearchMaker) -> None:
    run, evaluator = await new_run(store, patience=0), ScriptedEvaluator(delay_s=0.005)
    await search_for(run, evaluator, ListedProposer([0.9, 0.9, 0.9])).run()
    assert max(evaluator.done.values()) == 1
    evaluated = [c.evaluation.id for c in await store.read(load_candidates, run.id) if c.evaluation]
    assert len(set(evaluated)) < len(evaluated), "the same text came up more than once and shares its result"


async def test_a_run_cut_off_anywhere_goes_on_and_repeats_nothing(store: Store, search_for: SearchMaker) -> None:
    whole = await new_run(store, seed=1)
    await search_for(whole, ScriptedEvaluator(), ListedProposer(FACTORS)).run()
    expected = await decisions(store, whole.id)
    run, evaluator = await new_run(store, seed=1), ScriptedEvaluator(5, delay_s=0.004)
    cuts = 0
    while True:
        task = asyncio.create_task(search_for(run, evaluator, ListedProposer(FACTORS)).run())
        done, _ = await asyncio.wait([task], timeout=0.03 + 0.01 * cuts)
        if done:
            break
        task.cancel()
        await asyncio.wait([task])
        cuts += 1
    assert cuts >= 1
    # A text that ran on data before a cut has that result at once when it comes again; without a cut it may only be timed.
    assert timed(await decisions(store, run.id)) == timed(expected)
    assert await best_latency(store, run.id) == await best_latency(store, whole.id)
    evaluated = [
        e.data.candidate
        for e in await store.read(load_events, run=run.id, limit=10_000)
        if isinstance(e.data, CandidateEvaluated)
    ]
    candidates = await store.read(load_candidates, run.id)
    assert len(candidates) == len(expected) and set(evaluated) == {c.id for c in candidates}


async def test_a_baseline_that_does_not_pass_fails_the_run(store: Store, search_for: SearchMaker) -> None:
    run = await new_run(store)
    search = search_for(run, ScriptedEvaluator(), ListedProposer(FACTORS))
    search.parts = replace(search.parts, root=replace(search.parts.root, text="latency 3\nwrong\n"))
    assert await search.run() is RunState.FAILED
    assert "baseline does not pass (incorrect_numerical)" in (await store.read(load_run, run.id)).message


async def test_a_baseline_without_a_latency_fails_the_run_with_the_reason(
    store: Store, search_for: SearchMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await new_run(store)
    timed = ScriptedEvaluator.evaluate

    async def untimed(self: ScriptedEvaluator, request: EvaluationRequest) -> Evaluation:
        found = await timed(self, request)
        assert found.profile is not None
        return replace(found, profile=replace(found.profile, latency_us=None))

    monkeypatch.setattr(ScriptedEvaluator, "evaluate", untimed)
    assert await search_for(run, ScriptedEvaluator(), ListedProposer(FACTORS)).run() is RunState.FAILED
    assert "has no latency, because it depends on values" in (await store.read(load_run, run.id)).message


async def test_a_fixer_repairs_step_by_step(store: Store, search_for: SearchMaker) -> None:
    run = await new_run(store, iterations=1, plans=1, attempts=1, fixer_steps=3)
    proposer = RepairingProposer([0.5], ["illegal"], name="llm")
    await search_for(run, ScriptedEvaluator(), proposer).run()
    assert await best_latency(store, run.id) == 50.0
    statuses = [c.evaluation.status for c in await store.read(load_candidates, run.id) if c.evaluation and c.parent]
    assert statuses == [Status.COMPILE_ERROR, Status.COMPILE_ERROR, Status.PASSED]


async def test_a_spent_budget_pauses_the_run_with_what_it_found(store: Store, search_for: SearchMaker) -> None:
    run = await new_run(store, patience=0)
    state = await search_for(run, ScriptedEvaluator(), ListedProposer(FACTORS, plans_left=3)).run()
    record = await store.read(load_run, run.id)
    assert state is RunState.PAUSED and record.message.startswith("budget: ") and "cap" in record.message
    assert await best_latency(store, run.id) == 80.0


async def test_patience_and_target_stop_a_run(store: Store, search_for: SearchMaker) -> None:
    run = await new_run(store, patience=2, iterations=9)
    await search_for(run, ScriptedEvaluator(), ListedProposer([1.5, 1.2])).run()
    record = await store.read(load_run, run.id)
    assert record.iteration == 2 and "no further gain in 2 iterations" in record.message


async def test_a_run_says_how_long_it_took_beyond_its_time_limit(store: Store, search_for: SearchMaker) -> None:
    class Slow(ScriptedEvaluator):
        """Takes twenty seconds, as the search counts them."""

        async def evaluate(self, request: EvaluationRequest) -> Evaluation:
            search._started -= 20.0
            return await super().evaluate(request)

    run = await new_run(store, time_limit_s=0.0)
    search = search_for(run, Slow(), ListedProposer(FACTORS))
    assert await search.run() is RunState.FINISHED
    message = (await store.read(load_run, run.id)).message
    said, _, took = message.partition("; what was under way took ")
    assert said == "the time limit of 0 s was reached" and int(took.removesuffix(" s more")) >= 20


async def test_a_time_limit_ends_an_iteration_and_what_was_evaluated_until_then_is_chosen_from(
    store: Store, search_for: SearchMaker
) -> None:
    class Stuck(ScriptedEvaluator):
        """Never ends with the kernel of 50 us."""

        async def evaluate(self, request: EvaluationRequest) -> Evaluation:
            if "50.0" in request.kernel.text:
                await asyncio.sleep(600)
            return await super().evaluate(request)

    run = await new_run(store, iterations=3, time_limit_s=3.0)
    assert await search_for(run, Stuck(), ListedProposer([0.8, 0.5, 0.9])).run() is RunState.FINISHED
    record = await store.read(load_run, run.id)
    assert record.message.startswith("the time limit of 3 s was reached")
    assert await best_latency(store, run.id) == 80.0, "evaluated in time, and strictly before it became best"
    best = await store.read(load_candidate, record.best or 0)
    assert best.evaluation is not None and best.evaluation.gate is Gate.STRICT
    late = await new_run(store, time_limit_s=0.0)
    assert await search_for(late, ScriptedEvaluator(), ListedProposer(FACTORS)).run() is RunState.FINISHED
    assert await best_latency(store, late.id) == 100.0


async def test_a_proposer_learns_which_plans_gave_wrong_kernels(store: Store, search_for: SearchMaker) -> None:
    class Asked(ListedProposer):
        """Remembers the plans that it is told about, by iteration."""

        async def plan(self, request: PlanRequest) -> Plan | None:
            told.setdefault(request.iteration, set()).add(request.wrong)
            return await super().plan(request)

    told: dict[int, set[frozenset[int]]] = {}
    run = await new_run(store, iterations=2, attempts=1)
    await search_for(run, ScriptedEvaluator(), Asked([0.5, 0.9, 0.8], ["shaky", "", "wrong"])).run()
    plans = await store.read(load_plans, run.id)
    first = {plan.data["idea"]: plan.id for plan in plans if plan.iteration == 1}
    assert told == {1: {frozenset()}, 2: {frozenset({first[0], first[2]})}}, (
        "at the strict gate, and at the search gate"
    )


async def test_pause_waits_and_cancel_ends(store: Store, search_for: SearchMaker) -> None:
    control = RunControl()
    control.pause()
    run = await new_run(store, patience=0)
    task = asyncio.create_task(search_for(run, ScriptedEvaluator(), ListedProposer(FACTORS), control).run())
    await asyncio.sleep(0.1)
    assert (await store.read(load_run, run.id)).iteration == 0
    control.cancel()
    assert await asyncio.wait_for(task, 300) is RunState.CANCELLED


async def test_a_vetoed_candidate_leaves_the_beam_and_a_branch_joins_it(store: Store, search_for: SearchMaker) -> None:
    control = RunControl()
    run = await new_run(store, iterations=1)
    await search_for(run, ScriptedEvaluator(), ListedProposer(FACTORS), control).run()
    quick = await store.read(load_run, run.id)
    assert quick.best is not None and quick.baseline is not None
    second = await new_run(store, iterations=1, plans=1)
    control = RunControl(branches=[quick.best])
    await search_for(second, ScriptedEvaluator(), ListedProposer([0.9]), control).run()
    assert await best_latency(store, second.id) == pytest.approx(72.0)


class Crossing(ListedProposer):
    """Makes each crossover that it is asked for half as slow as the faster parent, and keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__([0.9, 0.8, 0.85])
        self.asked: list[PlanRequest] = []

    async def plan(self, request: PlanRequest) -> Plan | None:
        self.asked.append(request)
        if request.partner is None:
            return await super().plan(request)
        partner = request.partner.candidate.id
        return Plan(request.run, request.iteration, request.parent.id, request.index, "cross", partner=partner)

    async def attempt(self, request: AttemptRequest) -> Attempt | None:
        if request.plan.partner is None:
            return await super().attempt(request)
        assert request.partner is not None and request.partner.id == request.plan.partner
        latency_us = min(float(one.kernel.text.split()[1]) for one in (request.parent, request.partner)) / 2
        return Attempt(request.plan.id, request.index, kernel_text(latency_us, f"crossed {request.index}"))


async def test_the_second_plan_of_a_parent_crosses_it_with_a_winner_of_another_line(
    store: Store, search_for: SearchMaker
) -> None:
    run, proposer = await new_run(store, iterations=2, patience=0), Crossing()
    await search_for(run, ScriptedEvaluator(), proposer).run()
    plans = {plan.id: plan for plan in await store.read(load_plans, run.id)}
    crossed = [plan for plan in plans.values() if plan.partner is not None]
    first, second = dict.fromkeys(one.parent.id for one in proposer.asked[3:])
    assert {(plan.parent, plan.partner) for plan in crossed} == {(first, second), (second, first)}
    assert all(plan.index == 1 and plan.iteration == 2 for plan in crossed)
    assert all((one.partner is not None) == (one.index == 1) for one in proposer.asked[3:])
    assert await best_latency(store, run.id) == pytest.approx(40.0)
    record, candidates = await store.read(load_run, run.id), await store.read(load_candidates, run.id)
    assert outcome(record, candidates, plans).wins[-1].partner in (first, second)


async def test_a_search_by_crossovers_that_broke_off_goes_on_to_the_same_tree_and_replays(
    store: Store, search_for: SearchMaker, tmp_path: Path
) -> None:
    whole = await new_run(store, iterations=3, patience=0)
    await search_for(whole, ScriptedEvaluator(), Crossing()).run()
    for at in (7, 9, 12, 15):
        broken = await new_run(store, iterations=3, patience=0)
        with contextlib.suppress(KeyboardInterrupt, BaseExceptionGroup):
            await search_for(broken, BreaksDown(at), Crossing()).run()
        await search_for(broken, ScriptedEvaluator(), Crossing()).run()
        assert timed(await decisions(store, broken.id)) == timed(await decisions(store, whole.id))
    crossed = [plan for plan in await store.read(load_plans, whole.id) if plan.partner is not None]
    assert len({(plan.parent, plan.partner) for plan in crossed}) == len(crossed) > 2, "no two are crossed twice"
    with contextlib.closing(connect_reader(tmp_path / "acceld.db")) as connection:
        recorded = recording(connection, whole.id)
    assert differences(recorded)[0] == []
    others = [replace(plan, partner=plan.parent) if plan.partner else plan for plan in recorded.plans]
    changed = replace(recorded, plans=others)
    assert len(differences(changed)[0]) == len(crossed)


@pytest.mark.parametrize("strategy", ["best_of_n", "reflexion", "random"])
async def test_every_strategy_runs(store: Store, search_for: SearchMaker, strategy: str) -> None:
    run = await new_run(store, strategy=strategy, patience=0)
    assert await search_for(run, ScriptedEvaluator(), ListedProposer(FACTORS)).run() is RunState.FINISHED
    found = await best_latency(store, run.id)
    assert found is not None and found < 100


async def test_a_run_of_models_that_never_write_a_kernel_pauses_and_says_why(
    store: Store, search_for: SearchMaker
) -> None:
    class Talker(ListedProposer):
        async def attempt(self, request: AttemptRequest) -> Attempt | None:
            return Attempt(request.plan.id, request.index, None, "the answer holds no code block")

    run = await new_run(store, patience=0)
    state = await search_for(run, ScriptedEvaluator(), Talker(FACTORS, name="llm")).run()
    record = await store.read(listing.run_row, run.id)
    assert state is RunState.PAUSED and record["exit_code"] == 1
    assert "answers held a kernel" in record["message"] and "no code block" in record["message"]
    quiet = await new_run(store, patience=0)
    assert await search_for(quiet, ScriptedEvaluator(), Talker(FACTORS, name="rules")).run() is RunState.FINISHED


class Untrusting(ScriptedEvaluator):
    """Finds at the strict gate that the workload's reference changes its argument."""

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        found = await super().evaluate(request)
        if request.gate is not Gate.STRICT:
            return found
        weak = Failure(ADMISSION, "workload w: the reference changes its argument x", hint="Make a new array.")
        return replace(found, status=Status.SUSPECT, failure=weak, correctness=None)


async def test_a_run_whose_reference_is_at_fault_ends_with_that_fault(store: Store, search_for: SearchMaker) -> None:
    run = await new_run(store, iterations=5)
    await search_for(run, Untrusting(), ListedProposer([0.5, 0.6, 0.7])).run()
    record, candidates = await store.read(load_run, run.id), await store.read(load_candidates, run.id)
    assert record.message == "workload w: the reference changes its argument x" and record.iteration == 1
    found = outcome(record, candidates, {})
    assert found.failing == "workload w: the reference changes its argument x. Make a new array"
