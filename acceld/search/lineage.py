"""Collect the history shown to a planner: the steps that led to a kernel, and the outcomes of earlier plans. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from acceld.model import Candidate, Plan, Status
from acceld.proposers.interface import Step

STEPS = 8
"""Greatest number of steps of a lineage that are shown. The newest steps are shown."""


def outcomes(plans: Iterable[Plan], candidates: Mapping[int, Candidate]) -> dict[int, str]:
    """Return each plan's outcome as text, by the plan's id."""
    made: dict[int, list[Candidate]] = {}
    for candidate in candidates.values():
        if candidate.plan is not None:
            made.setdefault(candidate.plan, []).append(candidate)
    return {plan.id: _outcome(plan, made.get(plan.id, ()), candidates) for plan in plans}


def lineage(parent: Candidate, plans: Mapping[int, Plan], candidates: Mapping[int, Candidate]) -> tuple[Step, ...]:
    """Return the steps from the baseline to ``parent``, oldest first."""
    steps: list[Step] = []
    child = parent
    while child.parent is not None and len(steps) < STEPS:
        before = candidates.get(child.parent)
        plan = plans.get(child.plan or 0)
        if before is None:
            break
        if plan is not None:
            steps.append(Step(plan.title, plan.text, _ratio(before, child)))
        child = before
    return tuple(reversed(steps))


def _outcome(plan: Plan, made: Sequence[Candidate], candidates: Mapping[int, Candidate]) -> str:
    parent = candidates.get(plan.parent)
    ratios = [ratio for child in made if parent and (ratio := _ratio(parent, child)) is not None]
    if ratios:
        return f"{max(ratios):.2f} times as fast" if max(ratios) >= 1.0 else f"slower: {max(ratios):.2f} times as fast"
    if not made:
        return "it gave no kernel"
    evaluation = made[-1].evaluation
    if evaluation is None:
        return "not evaluated"
    rule = evaluation.failure.rule if evaluation.failure else ""
    return f"failed: {evaluation.status}" + (f" ({rule})" if rule else "")


def _ratio(before: Candidate, after: Candidate) -> float | None:
    """Return the speed-up of ``after`` over ``before``; None if either has no trusted latency."""
    if before.evaluation is None or after.evaluation is None or after.evaluation.status is not Status.PASSED:
        return None
    old, new = before.evaluation.latency_us, after.evaluation.latency_us
    return old / new if old and new else None
