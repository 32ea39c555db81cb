"""Collect what a planner is told about the past: the steps that led to a kernel, the outcomes of earlier plans, and
the second parent of a crossover. Pure functions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from acceld.model import Candidate, Plan, Status
from acceld.proposers.interface import AppliedPlan, Partner
from acceld.proposers.rules.records import rewrites_of
from acceld.search.beam import beats, rank

STEPS = 8
"""Greatest number of steps of a lineage that are shown; the newest steps are kept."""


def outcomes(plans: Iterable[Plan], candidates: Mapping[int, Candidate]) -> dict[int, str]:
    """Return the outcome of each plan as text, as a dict by the plan's id."""
    made: dict[int, list[Candidate]] = {}
    for candidate in candidates.values():
        if candidate.plan is not None:
            made.setdefault(candidate.plan, []).append(candidate)
    return {plan.id: _outcome(plan, made.get(plan.id, ()), candidates) for plan in plans}


def lineage(
    parent: Candidate, plans: Mapping[int, Plan], candidates: Mapping[int, Candidate]
) -> tuple[AppliedPlan, ...]:
    """Return the latest rewrites on the way from the baseline to ``parent``, oldest first."""
    return tuple(_steps(parent, frozenset(), plans, candidates))[-STEPS:]


def nearby(parent: Candidate, plans: Mapping[int, Plan], candidates: Mapping[int, Candidate]) -> tuple[Plan, ...]:
    """Return the plans that were made for ancestors of ``parent`` but did not lead to ``parent``, oldest first."""
    line = list(_line(parent, candidates))
    ancestors, own = {one.id for one in line[1:]}, {one.plan for one in line}
    found = [plan for plan in plans.values() if plan.parent in ancestors and plan.id not in own]
    return tuple(sorted(found, key=lambda plan: plan.id))


def partner_of(
    parent: Candidate,
    others: Iterable[Candidate],
    plans: Mapping[int, Plan],
    candidates: Mapping[int, Candidate],
    crossed: Collection[int] = (),
) -> Partner | None:
    """Return the fastest of ``others`` whose changes a crossover may bring into ``parent``; None if no candidate fits.

    The partner beats the baseline. The partner is neither an ancestor nor a descendant of ``parent``. Candidates in
    ``crossed`` are left out, because they were partners of ``parent`` before.
    """
    own = [one.id for one in _line(parent, candidates)]
    for other in sorted(others, key=rank):
        line = list(_line(other, candidates))
        is_related = other.id in own or any(one.id == parent.id for one in line)
        if not is_related and other.id not in crossed and beats(other, line[-1]):
            return Partner(other, tuple(_steps(other, own, plans, candidates)))
    return None


def _line(candidate: Candidate, candidates: Mapping[int, Candidate]) -> Iterator[Candidate]:
    """Yield a candidate, then its ancestors up to the baseline."""
    at: Candidate | None = candidate
    while at is not None:
        yield at
        at = candidates.get(at.parent or 0)


def _steps(
    candidate: Candidate, known: Collection[int], plans: Mapping[int, Plan], candidates: Mapping[int, Candidate]
) -> list[AppliedPlan]:
    """Return the rewrites that led to a candidate, oldest first. Rewrites up to the nearest ancestor in ``known`` are
    left out.
    """
    line = list(_line(candidate, candidates))
    shared = next((place for place, one in enumerate(line) if one.id in known), len(line) - 1)
    steps = []
    for child, before in reversed(list(pairwise(line[: shared + 1]))):
        plan = plans.get(child.plan or 0)
        if plan is not None:
            steps.append(AppliedPlan(plan.title, plan.text, _ratio(before, child), rewrites_of(plan, child.order[2])))
    return steps


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
    """Return the speed-up of ``after`` over ``before``; None if one of them has no trusted latency."""
    if before.evaluation is None or after.evaluation is None or after.evaluation.status is not Status.PASSED:
        return None
    old, new = before.evaluation.latency_us, after.evaluation.latency_us
    return old / new if old and new else None
