"""The first kernel of a run that starts from a reference: written by the executor, repaired by the fixer.

Try after try, each with its repairs, until one passes; what an earlier daemon did of it is taken up from the rows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from acceld.model import Candidate, Evaluation, Kernel, Run, Status
from acceld.proposers.interface import FirstRequest, Problem, Proposer
from acceld.search.strategies import derived_seed
from acceld.store.changes.tree import write_candidate
from acceld.store.database import Store
from acceld.store.reads.records import load_candidates

Judge = Callable[[Candidate], Awaitable[Candidate]]


async def first_kernel(
    run: Run,
    problem: Problem,
    proposer: Proposer,
    store: Store,
    blank: Kernel,
    judge: Judge,
    fixable: frozenset[Status],
) -> Candidate | None:
    """The first candidate that passes, which becomes the run's baseline; None where none does.

    ``blank`` is a kernel without text: API, entry and file name of what is asked for.
    """
    parameters = run.spec.search
    known = {one.order: one for one in await store.read(load_candidates, run.id) if one.parent is None}
    for attempt in range(parameters.plans):
        tries: list[tuple[str, Evaluation]] = []
        for step in range(parameters.fixer_steps + 1):
            candidate = known.get((0, 0, attempt, step))
            if candidate is None:
                seed = derived_seed(parameters.seed, 0, attempt, step)
                text = await proposer.first(FirstRequest(problem, run.id, blank, attempt, step, seed, tuple(tries)))
                if text is None:
                    break
                made = Candidate(run.id, 0, replace(blank, text=text), None, order=(0, 0, attempt, step))
                candidate = await store.change(write_candidate, made)
            if candidate.evaluation is None:
                candidate = await judge(candidate)
            evaluation = candidate.evaluation
            assert evaluation is not None
            if evaluation.status is Status.PASSED:
                return candidate
            if evaluation.status not in fixable:
                break
            tries.append((candidate.kernel.text, evaluation))
    return None
