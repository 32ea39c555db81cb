"""Run a search by rules on a fleet, and collect its decisions."""

from __future__ import annotations

from pathlib import Path

from acceld.evaluate.interface import Evaluator
from acceld.model import Kernel, RunSpec, RunState, SearchParameters
from acceld.proposers.interface import Problem
from acceld.search.loop import Search, SearchParts
from acceld.store.changes.runs import create_run
from acceld.store.database import Store
from acceld.store.reads.records import load_candidates, load_run
from tests.acceld.daemon.scripted import TenthFaster

SEARCH = SearchParameters(beam_width=3, plans=4, attempts=2, iterations=3, patience=0)
Decisions = list[tuple[int, tuple[int, ...], str, str, float | None]]


async def decisions_of(store: Store, run: int) -> Decisions:
    """Return every candidate's place, status and speed-up, and the best of the run, without hosts and times."""
    best, candidates = (await store.read(load_run, run)).best, await store.read(load_candidates, run)
    baseline_us = next(one.evaluation.latency_us for one in candidates if one.parent is None and one.evaluation)
    assert baseline_us
    return sorted(
        (
            one.iteration,
            one.order,
            "best" if one.id == best else "",
            one.evaluation.status.value if one.evaluation else "",
            round(baseline_us / (one.evaluation.latency_us or 0), 6)
            if one.evaluation and one.evaluation.profile
            else None,
        )
        for one in candidates
    )


def search_parts(store: Store, evaluator: Evaluator) -> SearchParts:
    """Return the parts of a search by rules that each make a kernel a tenth faster."""
    problem = Problem("silu", "", "", (), "trn1", "nki_legacy")
    root = Kernel("latency 100 # baseline", "nki_legacy", "kernel")
    return SearchParts(store, evaluator, TenthFaster(), problem, root, context="c")


async def decide(evaluator: Evaluator, path: Path, search: SearchParameters = SEARCH) -> Decisions:
    """Run the search to its end in a new store; return its decisions. Fail if an evaluation is stored twice."""
    store = Store.open(path)
    try:
        spec = RunSpec("silu", backend="neuron_legacy", search=search)
        run = await store.change(create_run, spec)
        assert await Search(run, search_parts(store, evaluator)).run() is RunState.FINISHED
        twice = "SELECT key FROM evaluations GROUP BY key HAVING count(*) > 1"
        assert await store.read(lambda connection: connection.execute(twice).fetchall()) == []
        return await decisions_of(store, run.id)
    finally:
        await store.close()
