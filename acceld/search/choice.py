"""Choose among the models of a role by their gain per dollar (a multi-armed bandit). Pure functions.

A model with few calls is treated as nearly average: its gain per dollar is computed as if it had begun with
:data:`PRIOR_CALLS` calls of average gain and cost. Each model keeps a share of about :data:`LEAST_SHARE` or more, so that a model
with bad luck is asked again. Only earlier iterations count, so that the same rows give the same shares after a restart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from acceld.model import Candidate, Plan, Status
from acceld.store.reads.records import PricedCall

PRIOR_CALLS = 8.0
LEAST_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Yield:
    """The gain, and the cost in USD, of one model's answers in one role."""

    calls: int = 0
    cost_usd: float = 0.0
    gain: float = 0.0
    """Sum of the base-2 logarithms of the candidates' speed-ups over their parents.

    A crossover's speed-up is that over the faster of its two parents. Slower or failed candidates add 0.
    """


def yields(
    calls: Iterable[PricedCall], plans: Iterable[Plan], candidates: Sequence[Candidate], role: str, before: int
) -> dict[str, Yield]:
    """Return the gain and the cost of the answers in ``role``, by model, for the iterations before ``before``."""
    known = {candidate.id: candidate for candidate in candidates}
    plans = tuple(plans)
    partners = {plan.id: plan.partner for plan in plans}
    of_place: dict[tuple[int, int, int], float] = {}
    of_plan: dict[int, float] = {}
    for candidate in candidates:
        if candidate.plan is None:
            continue
        gain = _gain(candidate, known.get(candidate.parent or 0))
        partner = known.get(partners.get(candidate.plan) or 0)
        if partner is not None:
            gain = min(gain, _gain(candidate, partner))
        of_plan[candidate.plan] = max(gain, of_plan.get(candidate.plan, 0.0))
        attempt, step = candidate.order[2], candidate.order[3]
        of_place[candidate.plan, attempt, step] = gain
    places = {(plan.iteration, plan.parent, plan.index): plan.id for plan in plans}
    found: dict[str, Yield] = {}
    for call in calls:
        tags = call.tags
        if call.role != role or tags.get("iteration", 0) >= before:
            continue
        if role == "planner":
            place = (tags.get("iteration", 0), tags.get("parent", 0), tags.get("index", 0))
            gain = of_plan.get(places.get(place, 0), 0.0)
        else:
            gain = of_place.get((tags.get("plan", 0), tags.get("attempt", 0), tags.get("step", 0)), 0.0)
        past = found.get(call.model, Yield())
        found[call.model] = Yield(past.calls + 1, past.cost_usd + call.cost_usd, past.gain + gain)
    return found


def shares(priors: Mapping[str, float], found: Mapping[str, Yield]) -> dict[str, float]:
    """Return the probability with which each model is drawn. ``priors`` has the configured weights, ``found`` the gains
    and costs so far.
    """
    total = sum(priors.values())
    calls, cost = sum(one.calls for one in found.values()), sum(one.cost_usd for one in found.values())
    gain = sum(one.gain for one in found.values())
    if not calls or not gain or not cost:
        return {name: weight / total for name, weight in priors.items()}
    mean_cost, mean_gain = cost / calls, gain / calls
    rates = {
        name: weight
        * (found.get(name, Yield()).gain + PRIOR_CALLS * mean_gain)
        / (found.get(name, Yield()).cost_usd + PRIOR_CALLS * mean_cost)
        for name, weight in priors.items()
    }
    whole = sum(rates.values())
    least = min(LEAST_SHARE, 1.0 / len(rates))
    raised = {name: max(least, rate / whole) for name, rate in rates.items()}
    return {name: share / sum(raised.values()) for name, share in raised.items()}


def _gain(child: Candidate, parent: Candidate | None) -> float:
    if parent is None or parent.evaluation is None or child.evaluation is None:
        return 0.0
    if child.evaluation.status is not Status.PASSED:
        return 0.0
    before, after = parent.evaluation.latency_us, child.evaluation.latency_us
    return max(0.0, math.log2(before / after)) if before and after else 0.0
