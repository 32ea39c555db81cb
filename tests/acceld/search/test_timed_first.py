"""Timing before data: a candidate that is only timed would not have become a winner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from acceld.config import EvaluateConfig
from acceld.daemon.build import problem_of
from acceld.evaluate.baselines import baseline_kernel
from acceld.evaluate.interface import EvaluationRequest, Evaluator, started
from acceld.evaluate.simulated.evaluator import SimulatedEvaluator
from acceld.model import Candidate, Evaluation, Gate, RunSpec, SearchParameters, Status
from acceld.proposers.rules.proposer import RulesProposer
from acceld.search.loop import Search, SearchParts
from acceld.store.changes.runs import create_run
from acceld.store.database import Store
from acceld.store.reads.records import load_candidates, load_run
from acceld.workloads import load_workload

WORKLOADS = Path(__file__).parents[2] / "adversarial" / "workloads"


class OnData:
    """An evaluator that runs every candidate on data, whatever its latency."""

    def __init__(self, inner: Evaluator) -> None:
        self._inner = inner

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """Pass at least the search gate."""
        gate = Gate.SEARCH if request.gate is Gate.TIMING else request.gate
        return await self._inner.evaluate(replace(request, gate=gate, useful_below_us=None))

    def statistics(self) -> dict[str, object]:
        """Return those of the evaluator behind it."""
        return self._inner.statistics()

    async def start(self) -> None:
        """Do nothing: the evaluator is started already."""

    async def stop(self, grace_s: float) -> None:
        """Do nothing: whoever started the evaluator stops it."""


async def searched(
    name: str, evaluator: Evaluator, place: Path, iterations: int
) -> tuple[list[str], Sequence[Candidate]]:
    """Return the programs from the baseline to the best, and every candidate."""
    found = load_workload(WORKLOADS / name)
    store = Store.open(place)
    try:
        parameters = SearchParameters(beam_width=2, plans=6, attempts=2, iterations=iterations)
        root = baseline_kernel(found, "nki_legacy")
        spec = RunSpec(name, chip="trn2", search=parameters, root=root, workload_folder=str(found.folder))
        run = await store.change(create_run, spec)
        problem = problem_of(found, "trn2", root.api)
        await Search(run, SearchParts(store, evaluator, RulesProposer(), problem, root)).run()
        candidates = await store.read(load_candidates, run.id)
        best = (await store.read(load_run, run.id)).best
    finally:
        await store.close()
    by_id = {one.id: one for one in candidates}
    at, line = by_id.get(best or 0), []
    while at is not None:
        line.append(at.kernel.sha256)
        at = by_id.get(at.parent or 0)
    return line, candidates


@pytest.mark.parametrize(
    ("name", "iterations"),
    [
        ("st_silu", 2),
        pytest.param("st_silu", 3, marks=pytest.mark.slow),
        pytest.param("st_rmsnorm", 3, marks=pytest.mark.slow),
    ],
)
async def test_a_search_that_times_first_finds_the_same_winner_by_the_same_steps(
    name: str, iterations: int, tmp_path: Path
) -> None:
    evaluator = SimulatedEvaluator(EvaluateConfig(slots=1, memory_gib=2.0), tmp_path / "state")
    async with started(evaluator):
        line, timed_first = await searched(name, evaluator, tmp_path / "lazy.db", iterations)
        evaluator.forget()
        on_data, every = await searched(name, OnData(evaluator), tmp_path / "eager.db", iterations)
    assert line == on_data
    assert all(one.evaluation and one.evaluation.status is not Status.UNTESTED for one in every)
    saved = [one for one in timed_first if one.evaluation and one.evaluation.status is Status.UNTESTED]
    assert saved
