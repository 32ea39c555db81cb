"""Find signs that a search goes wrong, and compute how often its repairs succeed. Pure functions.

The signs are failures that the AccelOpt paper describes: a beam whose candidates all come from one candidate, a memory
that no plan cites, plans that repeat, calls without code. Each sign has a figure, and a sentence that advises a change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from acceld.model import Attempt, Candidate, Insight, Plan, Status
from acceld.search.memory import redundancy, repeated

LEAST = 8
"""Number of plans, attempts or insights from which on a sign is computed; fewer tell nothing."""


@dataclass(frozen=True, slots=True)
class Sign:
    """One warning about a run: the figure that causes it, and what to change."""

    name: str
    value: float
    text: str
    hint: str
    of_models: bool = True
    """True if the sign is about calls of models."""


@dataclass(frozen=True, slots=True)
class RepairRate:
    """The number of repairs of one class of failure, and how many of them succeeded."""

    status: Status
    rule: str
    repaired: int
    tries: int


def signs(
    candidates: Sequence[Candidate],
    plans: Sequence[Plan],
    attempts: Sequence[Attempt],
    beam: Sequence[int],
    insights: Sequence[Insight],
) -> list[Sign]:
    """Return the warnings about a run; [] if there are none. ``beam`` has the ids of the latest beam."""
    found = [
        one_lineage(candidates, beam),
        uncited(plans),
        repeating(plans),
        redundant(insights),
        without_code(attempts),
    ]
    return [sign for sign in found if sign is not None]


def one_lineage(candidates: Sequence[Candidate], beam: Sequence[int]) -> Sign | None:
    """Return a warning if all candidates of the beam share the baseline and at least two more ancestors; None
    otherwise.
    """
    by_id = {candidate.id: candidate for candidate in candidates}
    lines = [_lineage(number, by_id) for number in beam if number in by_id]
    lines = [line for line in lines if len(line) > 1]
    if len(lines) < 2 or min(len(line) for line in lines) < 4:
        return None
    shared = sum(1 for step in zip(*(reversed(line) for line in lines), strict=False) if len(set(step)) == 1)
    if shared < 3:
        return None
    return Sign(
        "one_lineage",
        shared,
        f"all {len(lines)} candidates of the beam share their first {shared - 1} ancestors after the baseline",
        "Widen the beam, or branch from another candidate.",
        of_models=False,
    )


def uncited(plans: Sequence[Plan]) -> Sign | None:
    """Return a warning if plans almost never cite the insights that their planners saw; None otherwise."""
    shown = [plan for plan in plans if plan.insights]
    if len(shown) < LEAST:
        return None
    share = sum(bool(plan.data.get("cited")) for plan in shown) / len(shown)
    if share >= 0.05:
        return None
    return Sign(
        "memory_uncited",
        share,
        f"{len(shown)} plans were shown insights and {share:.0%} cite an insight",
        "Turn the memory off to save its tokens, or mute insights that do not help.",
    )


def repeating(plans: Sequence[Plan]) -> Sign | None:
    """Return a warning if many plans repeat an earlier plan for the same kernel; None otherwise."""
    share = repeated(plans)
    if len(plans) < LEAST or share < 0.3:
        return None
    return Sign(
        "plans_repeat",
        share,
        f"{share:.0%} of {len(plans)} plans repeat an earlier plan for the same kernel",
        "Use fewer plans a parent, mix models, or raise the planner's temperature.",
    )


def redundant(insights: Sequence[Insight]) -> Sign | None:
    """Return a warning if insights repeat each other; None otherwise."""
    figure = redundancy([insight for insight in insights if not insight.withdrawn])
    if len(insights) < LEAST or figure < 0.6:
        return None
    return Sign(
        "insights_alike",
        figure,
        f"an insight shares {figure:.0%} of its words with its nearest neighbor",
        "Lower top_k, or mute all but one of the similar ones.",
    )


def without_code(attempts: Sequence[Attempt]) -> Sign | None:
    """Return a warning if many attempts have no code; None otherwise."""
    share = sum(attempt.text is None for attempt in attempts) / len(attempts) if attempts else 0.0
    if len(attempts) < LEAST or share < 0.25:
        return None
    reason, _ = Counter(attempt.reason for attempt in attempts if attempt.text is None).most_common(1)[0]
    return Sign(
        "no_code",
        share,
        f"{share:.0%} of {len(attempts)} attempts hold no code, most often because {reason}",
        "Raise max_output_tokens, or use another executor.",
    )


def repair_rates(candidates: Iterable[Candidate], attempts: Mapping[int, Attempt]) -> list[RepairRate]:
    """Return, by class of failure, how many repairs were tried and how many passed; the class with most repairs comes
    first. ``attempts`` maps ids to attempts.
    """
    by_attempt = {c.attempt: c for c in candidates if c.attempt is not None}
    tries: Counter[tuple[Status, str]] = Counter()
    repaired: Counter[tuple[Status, str]] = Counter()
    for number, attempt in attempts.items():
        failed = by_attempt.get(attempt.fix_of) if attempt.fix_of is not None else None
        if failed is None or failed.evaluation is None:
            continue
        failure = failed.evaluation.failure
        key = (failed.evaluation.status, failure.rule if failure else "")
        tries[key] += 1
        after = by_attempt.get(number)
        status = after.evaluation.status if after is not None and after.evaluation is not None else None
        repaired[key] += status in (Status.PASSED, Status.UNTESTED)
    return [RepairRate(status, rule, repaired[status, rule], count) for (status, rule), count in tries.most_common()]


def _lineage(number: int, by_id: Mapping[int, Candidate]) -> list[int]:
    """Return the ids of a candidate and its ancestors, the baseline last."""
    line = [number]
    while (parent := by_id[line[-1]].parent) is not None and parent in by_id:
        line.append(parent)
    return line
