"""Stopping slow candidates and expensive percents changes no decision of a search."""

from __future__ import annotations

import pytest

from acceld.evaluate.interface import EvaluationRequest
from acceld.events import BeamSelected
from acceld.model import Evaluation, Gate, Plan, Status
from acceld.model_calls import CallIntent, CallOutcome, Usage
from acceld.proposers.interface import PlanRequest
from acceld.search.forecast import next_percent_usd
from acceld.store.changes.calls import begin_call, end_call
from acceld.store.changes.runs import Spent
from acceld.store.database import Store
from acceld.store.reads.records import load_candidates, load_events, load_run
from tests.acceld.search.conftest import ListedProposer, RepairingProposer, ScriptedEvaluator, SearchMaker, new_run


class TimingEvaluator(ScriptedEvaluator):
    """Only times a candidate that is slower than the useful latency, as the simulator does."""

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        useful, latency_us = request.useful_below_us, float(request.kernel.text.split()[1])
        if request.gate is Gate.SEARCH and useful is not None and latency_us > useful:
            self.done[request.key] += 1
            known = await super().evaluate(request)
            return known if known.profile is None else Evaluation(
                Status.UNTESTED, known.source_sha256, program_sha256=known.program_sha256, profile=known.profile
            )  # fmt: skip
        return await super().evaluate(request)


async def beams(store: Store, run: int) -> list[list[str]]:
    """Return the texts of every beam, in order."""
    texts = {c.id: c.kernel.text for c in await store.read(load_candidates, run)}
    found = [e.data.beam for e in await store.read(load_events, run=run) if isinstance(e.data, BeamSelected)]
    return [[texts[number] for number in beam] for beam in found]


async def test_slow_candidates_are_only_timed_and_the_beams_stay_the_same(
    store: Store, search_for: SearchMaker
) -> None:
    factors = [0.9, 1.5, 0.95]
    kinds = (TimingEvaluator(1, 0.002), ScriptedEvaluator(2, 0.002))
    chosen = []
    for evaluator in kinds:
        run = await new_run(store, patience=0, plans=3, attempts=1, iterations=4)
        await search_for(run, evaluator, RepairingProposer(factors, name="llm")).run()
        chosen.append(await beams(store, run.id))
        await store.change(lambda tx: tx.execute("UPDATE evaluations SET key = key || '/earlier'") and None)
        if evaluator is kinds[0]:
            statuses = [
                c.evaluation.status
                for c in await store.read(load_candidates, run.id)
                if c.evaluation and c.iteration > 1
            ]
            assert Status.UNTESTED in statuses and Status.PASSED in statuses
    assert chosen[0] == chosen[1]


async def test_a_candidate_that_was_only_timed_is_tested_when_another_run_needs_it(
    store: Store, search_for: SearchMaker
) -> None:
    narrow = await new_run(store, patience=0, beam_width=1, plans=2, attempts=1, iterations=1)
    await search_for(narrow, TimingEvaluator(), RepairingProposer([0.9, 1.5], name="llm")).run()
    wide = await new_run(store, patience=0, beam_width=3, plans=2, attempts=1, iterations=1)
    await search_for(wide, TimingEvaluator(), RepairingProposer([0.9, 1.5], name="llm")).run()

    def status(text: str, candidates: list[tuple[str, Status]]) -> Status:
        return next(found for kernel, found in candidates if kernel.startswith(text))

    evaluated = [
        [(c.kernel.text, c.evaluation.status) for c in await store.read(load_candidates, run.id) if c.evaluation]
        for run in (narrow, wide)
    ]
    assert status("latency 150.0", evaluated[0]) is Status.UNTESTED
    assert status("latency 150.0", evaluated[1]) is Status.PASSED


def spent(*rows: tuple[float | None, float]) -> list[Spent]:
    return [Spent(cost, 0.0, speedup) for cost, speedup in rows]


def test_the_next_percent_costs_what_the_last_ones_did() -> None:
    assert next_percent_usd(spent((1.0, 1.1), (1.0, 1.2))) is None, "too early"
    assert next_percent_usd(spent((1.0, 1.0), (1.0, 1.0), (1.0, 1.1))) == pytest.approx(0.3)
    assert next_percent_usd(spent((9.0, 2.0), (1.0, 2.0), (1.0, 2.0), (1.0, 2.2))) == pytest.approx(0.3)
    assert next_percent_usd(spent((1.0, 1.5), (1.0, 1.5), (1.0, 1.5), (1.0, 1.5))) == float("inf")
    assert next_percent_usd(spent((None, 1.0), (1.0, 1.0), (1.0, 1.1))) is None, "a price is unknown"
    assert next_percent_usd(spent((0.0, 1.0), (0.0, 1.0), (0.0, 1.0))) is None, "nothing was spent"
    hours = [Spent(0.0, 3600.0, 1.0 + 0.1 * n) for n in range(3)]
    assert next_percent_usd(hours, 2.0) == pytest.approx(6.0 / 20)


class PaidProposer(ListedProposer):
    """Every plan costs a dollar."""

    def __init__(self, store: Store, factors: list[float]) -> None:
        super().__init__(factors, name="llm")
        self.store = store

    async def plan(self, request: PlanRequest) -> Plan | None:
        key = f"{request.iteration} {request.place} {request.index}"
        tags = {"run": request.run, "iteration": request.iteration}
        asked = CallIntent(key, "planner", "m", "", "", "", "", 0, 1.0, tags=tags)
        await self.store.change(
            end_call, await self.store.change(begin_call, asked), CallOutcome("answered", Usage(), 1.0)
        )
        return await super().plan(request)


@pytest.mark.parametrize(("factor", "iterations"), [(0.99, 3), (0.8, 6)])
async def test_a_run_ends_where_the_next_percent_is_too_expensive(
    store: Store, search_for: SearchMaker, factor: float, iterations: int
) -> None:
    sizes = {"beam_width": 1, "plans": 2, "attempts": 1, "iterations": 6, "patience": 0}
    run = await new_run(store, max_usd_per_percent=1.0, **sizes)
    await search_for(run, ScriptedEvaluator(), PaidProposer(store, [factor, 1.1])).run()
    record = await store.read(load_run, run.id)
    assert record.iteration == iterations
    assert record.message.startswith("the next percent of speed-up would cost") == (iterations == 3)
