"""Classes of defect that a search like this can have, and that docs/accelopt.md names a test for each of."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from acceld.evaluate.interface import EvaluationRequest
from acceld.model import Attempt, Evaluation, Plan, RunState, Status
from acceld.proposers.interface import AttemptRequest, PlanRequest
from acceld.store.database import Store
from acceld.store.reads.records import load_candidate, load_candidates, load_run
from tests.acceld.search.conftest import ListedProposer, ScriptedEvaluator, SearchMaker, new_run

ROOT = Path(__file__).resolve().parents[3]


def test_every_test_that_the_documentation_names_exists() -> None:
    named = re.findall(r"`(test_\w+)`", (ROOT / "docs" / "accelopt.md").read_text(encoding="utf-8"))
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    there = set(re.findall(r"def (test_\w+)\(", sources))
    assert len(named) >= 27 and set(named) <= there, set(named) - there


async def test_a_kernel_is_evaluated_while_another_plan_is_still_being_written(
    store: Store, search_for: SearchMaker
) -> None:
    evaluated = asyncio.Event()

    class Watched(ScriptedEvaluator):
        async def evaluate(self, request: EvaluationRequest) -> Evaluation:
            if "attempt" in request.kernel.text:
                evaluated.set()
            return await super().evaluate(request)

    class Slow(ListedProposer):
        async def plan(self, request: PlanRequest) -> Plan | None:
            if request.index == 1:
                await asyncio.wait_for(evaluated.wait(), 300)
            return await super().plan(request)

    run = await new_run(store, plans=2, attempts=1, iterations=1)
    assert await search_for(run, Watched(), Slow([0.9, 0.8])).run() is RunState.FINISHED
    assert len(await store.read(load_candidates, run.id)) == 3


async def test_a_bad_kernel_takes_no_sibling_with_it(store: Store, search_for: SearchMaker) -> None:
    run = await new_run(store, plans=3, attempts=2, iterations=1)
    await search_for(run, ScriptedEvaluator(), ListedProposer([0.9, 0.8, 0.7], ["illegal", "", ""])).run()
    statuses = [c.evaluation.status for c in await store.read(load_candidates, run.id) if c.evaluation and c.parent]
    assert len(statuses) == 6 and statuses.count(Status.COMPILE_ERROR) == 2


class Silent(ListedProposer):
    """Its answers hold no code in some places, or anywhere in the first iteration."""

    def __init__(self, factors: list[float], *, first_iteration: bool = False) -> None:
        super().__init__(factors, name="llm")
        self.first_iteration = first_iteration

    async def attempt(self, request: AttemptRequest) -> Attempt | None:
        silent = request.plan.iteration == 1 if self.first_iteration else request.index == 0
        if silent:
            return Attempt(request.plan.id, request.index, None, "the answer holds no code block")
        return await super().attempt(request)


async def test_attempts_keep_their_numbers_when_others_fail(store: Store, search_for: SearchMaker) -> None:
    run = await new_run(store, plans=2, attempts=3, iterations=1)
    await search_for(run, ScriptedEvaluator(), Silent([0.9, 0.8])).run()
    places = [c.order for c in await store.read(load_candidates, run.id) if c.parent]
    assert places == [(0, 0, 1, 0), (0, 0, 2, 0), (0, 1, 1, 0), (0, 1, 2, 0)]


async def test_an_iteration_without_any_code_is_survived(store: Store, search_for: SearchMaker) -> None:
    run = await new_run(store, plans=2, attempts=1, iterations=2, patience=0)
    assert (
        await search_for(run, ScriptedEvaluator(), Silent([1.1, 1.2, 0.9, 0.8], first_iteration=True)).run()
        is RunState.FINISHED
    )
    found = await store.read(load_run, run.id)
    assert found.iteration == 2 and found.best is not None
    best = await store.read(load_candidate, found.best)
    assert best.iteration == 2 and best.evaluation is not None and best.evaluation.latency_us == 80.0
