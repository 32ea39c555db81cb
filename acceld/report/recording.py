"""Write other projects' results into the history, as finished runs that name their origin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acceld.model import Attempt, Candidate, Evaluation, Insight, Plan, RunSpec, RunState, Source, Status
from acceld.report import checkpoints, imports
from acceld.store.changes.insights import write_insight
from acceld.store.changes.runs import create_run, select_beam, set_best, set_run_state, start_iteration
from acceld.store.changes.tree import write_attempt, write_candidate, write_evaluation, write_plan
from acceld.store.database import Store

PROPOSER = "imported"


async def record_results(store: Store, found: imports.Imported, origin: str) -> Mapping[str, Any]:
    """Store a run with the results of another project. Its baseline is the slowest kernel that passed.

    Return ``run`` (its id), ``workload`` (name) and ``candidates`` (number).
    """
    spec = RunSpec(found.workload, chip=found.chip, api="imported", backend=found.backend, proposer=PROPOSER)
    run = await store.change(create_run, spec)
    await store.change(set_run_state, run.id, RunState.RUNNING)
    passed = [entry for entry in found.results if entry[1].status is Status.PASSED]
    passed.sort(key=lambda entry: -(entry[1].latency_us or 0.0))
    others = [entry for entry in found.results if entry[1].status is not Status.PASSED]
    first = None
    for kernel, evaluation in (*passed, *others):
        made = await store.change(write_candidate, Candidate(run.id, 0 if first is None else 1, kernel, first))
        made = await _write_evaluation(store, made, evaluation, spec, imports.METHOD)
        first = first or made.id
        if evaluation.status is Status.PASSED:
            await store.change(set_best, run.id, made.id)
    await store.change(set_run_state, run.id, RunState.FINISHED, f"imported from {origin}")
    return {"run": run.id, "workload": found.workload, "candidates": len(found.results)}


async def record_checkpoint(store: Store, case: checkpoints.Checkpoint, chip: str, origin: str) -> Mapping[str, Any]:
    """Store AccelOpt's search as a run: plans, attempts, kernels, beams and memory. Its latencies count as
    ``measured``.
    """
    spec = RunSpec(case.name, chip=chip, api=checkpoints.API, backend=PROPOSER, proposer=PROPOSER)
    run = await store.change(create_run, spec)
    await store.change(set_run_state, run.id, RunState.RUNNING)
    writer = _CheckpointWriter(store, run.id, spec)
    await writer.write_baseline(case)
    for number, iteration in enumerate(case.iterations, 1):
        await writer.write_iteration(number, iteration)
    await store.change(set_run_state, run.id, RunState.FINISHED, f"imported from {origin}")
    return {
        "run": run.id,
        "workload": case.name,
        "candidates": writer.candidates,
        "iterations": len(case.iterations),
        "insights": len(writer.reported),
    }


class _CheckpointWriter:
    """Store the iterations of a checkpoint one after another. Equal texts are the same kernel."""

    def __init__(self, store: Store, run: int, spec: RunSpec) -> None:
        self._store, self._run, self._spec = store, run, spec
        self._by_text: dict[str, Candidate] = {}
        self._best: Candidate | None = None
        self.reported: set[tuple[str, str]] = set()
        self.candidates = 0

    async def write_baseline(self, case: checkpoints.Checkpoint) -> None:
        """Store the kernel with which AccelOpt's search began."""
        evaluation = checkpoints.passed(case.baseline, case.baseline_us, {}, self._spec.chip)
        await self._write(Candidate(self._run, 0, case.baseline, None), evaluation)

    async def write_iteration(self, number: int, iteration: checkpoints.Iteration) -> None:
        """Store the plans, answers and insights of one iteration, and the beam at its end."""
        parents = {text: await self._parent(number, text, us) for text, us in iteration.parents.items()}
        await self._store.change(start_iteration, self._run, number, [parent.id for parent in parents.values()])
        plans: dict[tuple[str, int], Plan] = {}
        for (text, index), prose in iteration.plans.items():
            plan = Plan(self._run, number, parents[text].id, index, prose, title=_title(prose))
            plans[text, index] = await self._store.change(write_plan, plan)
        made = []
        for answer in iteration.answers:
            plan, parent = plans[answer.parent, answer.plan], parents[answer.parent]
            kernel = checkpoints.kernel_of(answer.text) if answer.text is not None else None
            reason = answer.reason if kernel is None else ""
            attempt = await self._store.change(
                write_attempt, Attempt(plan.id, answer.index, kernel.text if kernel else None, reason)
            )
            if kernel is not None and answer.evaluation is not None:
                order = (list(parents).index(answer.parent), answer.plan, answer.index, 0)
                candidate = Candidate(self._run, number, kernel, parent.id, plan.id, attempt.id, order)
                made.append(await self._write(candidate, answer.evaluation))
        for rewrite in iteration.rewrites:
            await self._write_insight(number, rewrite)
        kept = sorted(
            (one for one in (*parents.values(), *made) if one.evaluation and one.evaluation.latency_us),
            key=lambda one: (one.evaluation.latency_us or 0.0) if one.evaluation else 0.0,
        )
        if self._best is not None:
            width = max(1, len(parents))
            await self._store.change(select_beam, self._run, number, [one.id for one in kept[:width]], self._best.id)

    async def _parent(self, number: int, text: str, latency_us: float) -> Candidate:
        """Return the candidate that has a text, and store it first if it is not stored yet.

        A parent is not stored yet if the checkpoint lacks the iteration that made it.
        """
        kernel = checkpoints.kernel_of(text)
        found = self._by_text.get(kernel.sha256)
        if found is None:
            evaluation = checkpoints.passed(kernel, latency_us, {}, self._spec.chip)
            found = await self._write(Candidate(self._run, number - 1, kernel, None), evaluation)
        return found

    async def _write(self, candidate: Candidate, evaluation: Evaluation) -> Candidate:
        made = await self._store.change(write_candidate, candidate)
        made = await _write_evaluation(self._store, made, evaluation, self._spec, checkpoints.METHOD)
        self._by_text.setdefault(candidate.kernel.sha256, made)
        self.candidates += 1
        latency_us = evaluation.latency_us
        best_us = self._best.evaluation.latency_us if self._best and self._best.evaluation else None
        if evaluation.status is Status.PASSED and latency_us and (best_us is None or latency_us < best_us):
            self._best = made
            await self._store.change(set_best, self._run, made.id)
        return made

    async def _write_insight(self, number: int, rewrite: checkpoints.Rewrite) -> None:
        """Store an entry of AccelOpt's memory once, although every iteration repeats the entries of earlier iterations."""
        if (rewrite.title, rewrite.fast) in self.reported:
            return
        self.reported.add((rewrite.title, rewrite.fast))
        slow, fast = (checkpoints.kernel_of(text) for text in (rewrite.slow, rewrite.fast))
        known = [self._by_text.get(kernel.sha256) for kernel in (slow, fast)]
        await self._store.change(
            write_insight,
            Insight(
                title=rewrite.title,
                strategy=rewrite.strategy,
                slow=slow.text,
                fast=fast.text,
                speedup=rewrite.speedup,
                kind=rewrite.kind,
                run=self._run,
                iteration=number,
                slow_candidate=known[0].id if known[0] else 0,
                fast_candidate=known[1].id if known[1] else 0,
                chip=self._spec.chip,
                api=self._spec.api,
                source=Source.MEASURED,
            ),
        )


async def _write_evaluation(
    store: Store, made: Candidate, evaluation: Evaluation, spec: RunSpec, method: str
) -> Candidate:
    key = f"{method}/{spec.workload}/{spec.chip}/{made.kernel.sha256}"
    return await store.change(
        write_evaluation, made, evaluation, workload=spec.workload, backend=spec.backend, chip=spec.chip, key=key
    )


def _title(prose: str) -> str:
    """Return the first line of a plan that has words, without markup; "" if there is none."""
    for line in prose.splitlines():
        text = line.replace("**", "").strip("#*- \t")
        if text:
            return text[:120]
    return ""
