"""Manage the optimization memory: choose the rewrites that teach, and the insights that are shown, merged or withdrawn.
Pure functions.

After AccelOpt (arXiv 2511.15915, section 3): each iteration at most TopK new insights, at most half of them positive,
from pairs of a parent and a child that differ by more than a threshold; capacity ExpN. Different from the paper:
thresholds never lie inside the noise, a group of attempts may teach both its best and its worst, pairs come only from
kernels that pass the strict gate, and near-duplicates are merged.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from acceld.gains import validated
from acceld.model import SIMULATED_LESSON_PERCENT, Candidate, Insight, InsightKind, MemoryPolicy, Plan, Source, Status
from acceld.proposers.interface import NO_PLAN, RewritePair

POLICIES = get_args(MemoryPolicy)

TOO_ALIKE = 0.8
"""Similarity from which a new insight counts as the same as an older one."""

HALF_LIFE = 32
"""Under ``value``: number of newer insights after which an insight counts half as much."""

ELSEWHERE = 0.5
"""Under ``value``: weight of an insight from a workload without a common tag, or from other dtypes."""

_WORD = re.compile(r"[a-z_][a-z0-9_]*|\d+")


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """The memory's hyper-parameters, with the paper's names in the comments."""

    policy: str = "off"
    capacity: int = 16  # ExpN in the paper
    top_k: int = 8  # TopK in the paper
    t_pos: float = 1.04
    t_neg: float = 1.15
    show_simulated: bool = False
    """True if a run with measured latencies also sees insights from simulations, marked as unverified."""
    own: bool = False
    """True if a run sees only its own insights, without those pinned by other runs. Used for comparisons."""

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ValueError(f"there is no memory policy {self.policy!r}; there are {', '.join(POLICIES)}")
        if self.t_pos < 1 or self.t_neg < 1:
            raise ValueError("t_pos and t_neg are ratios of at least 1")


@dataclass(frozen=True, slots=True)
class Applicability:
    """The setting of a run, which an insight must fit to be shown."""

    run: int
    chip: str
    api: str
    sdk: str = ""
    source: Source = Source.SIMULATED
    tags: tuple[str, ...] = ()
    bound: str = ""
    """The bottleneck of the kernel that is to be improved."""
    dtype: str = ""


def noise(candidate: Candidate) -> float:
    """Return the noise of this candidate's ratio to its parent, as a fraction: smaller differences teach nothing. 0 if
    unknown.
    """
    profile = candidate.evaluation.profile if candidate.evaluation else None
    if profile is None:
        return 0.0
    if (percent := profile.details.get("tie_percent")) is not None:
        return float(percent) / 100.0
    if profile.source is Source.SIMULATED:
        return SIMULATED_LESSON_PERCENT / 100.0
    if against := profile.details.get("paired"):  # the comparison with its parent comes first
        return float(against[0]["band_percent"]) / 100.0
    if profile.latency_us and profile.resolution_us:
        return 2.0 * profile.resolution_us / profile.latency_us
    return 0.0


def rewrites(
    candidates: Iterable[Candidate], plans: Mapping[int, Plan], settings: MemorySettings
) -> tuple[list[RewritePair], list[RewritePair]]:
    """Return the pairs that could teach, best first: positive ones (parent, child), negative ones (child, parent).

    Each group of attempts (one plan for one parent) offers its best child and its worst. A child is left out if its
    program equals its parent's or was already offered, or if one of the two latencies has no validated interval.
    """
    by_id = {candidate.id: candidate for candidate in candidates}
    groups: dict[tuple[int, int | None], list[tuple[float, Candidate]]] = {}
    for child in sorted(by_id.values(), key=lambda candidate: candidate.order):
        parent = by_id.get(child.parent) if child.parent is not None else None
        if parent is None or not (_timed(parent) and _timed(child)) or _program(parent) == _program(child):
            continue
        if not (_validated(parent) and _validated(child)):
            continue
        groups.setdefault((parent.id, child.plan), []).append((_latency(parent) / _latency(child), child))
    positive: list[RewritePair] = []
    negative: list[RewritePair] = []
    seen: set[tuple[int | None, str]] = set()
    for (parent_id, plan_id), group in groups.items():
        plan = plans.get(plan_id) if plan_id is not None else None
        best, worst = max(group, key=lambda entry: entry[0]), min(group, key=lambda entry: entry[0])
        for ratio, child in (best, worst) if best[1].id != worst[1].id else (best,):
            least = 1.0 + noise(child)
            key = (child.parent, _program(child) or child.kernel.sha256)
            if key in seen:
                continue
            if ratio > max(settings.t_pos, least):
                positive.append(RewritePair(by_id[parent_id], child, ratio, True, plan))
                seen.add(key)
            elif 1.0 / ratio > max(settings.t_neg, least):
                slowdown = _latency(child) / _latency(by_id[parent_id])
                negative.append(RewritePair(child, by_id[parent_id], slowdown, False, plan))
                seen.add(key)
    positive.sort(key=lambda pair: (-pair.speedup, pair.fast.order))
    negative.sort(key=lambda pair: (-pair.speedup, pair.slow.order))
    return positive, negative


def quota(top_k: int, positives: int) -> tuple[int, int]:
    """Return the numbers of positive and negative pairs to summarize: at most half are positive, negative ones fill the rest."""
    taken = min(positives, top_k // 2)
    return taken, top_k - taken


def applies(insight: Insight, where: Applicability, settings: MemorySettings) -> bool:
    """Return True if an insight may be shown in a setting."""
    if insight.muted or insight.withdrawn or (settings.own and insight.run != where.run):
        return False
    if insight.chip not in ("", where.chip) or insight.api not in ("", where.api):
        return False
    if where.source is Source.MEASURED and insight.source is Source.SIMULATED:
        return settings.show_simulated
    return True


def unverified(insight: Insight, where: Applicability) -> bool:
    """Return True if the insight must be marked as unverified: simulated in a measured run, or measured under another
    SDK.
    """
    if insight.source is not where.source:
        return insight.source is Source.SIMULATED
    return bool(insight.sdk and where.sdk and insight.sdk != where.sdk)


def shown(
    insights: Iterable[Insight], where: Applicability, settings: MemorySettings, iteration: int, seed: int
) -> tuple[Insight, ...]:
    """Return the insights that the planner sees: pinned ones, then those of the policy, at most ``capacity``.

    ``fifo`` (the paper): the run's newest. ``random`` (the published code): those of the iteration before, and a sample
    of the run's older ones. ``value``: the best win-rate with decay, over all runs.
    """
    if settings.policy == "off":
        return ()
    fitting = sorted((i for i in insights if applies(i, where, settings)), key=lambda insight: insight.id)
    pinned = [insight for insight in fitting if insight.pinned][-settings.capacity :]
    room = settings.capacity - len(pinned)
    others = [insight for insight in fitting if not insight.pinned]
    own = [insight for insight in others if insight.run == where.run]
    if settings.policy == "value":
        newest = len(others)
        ranked = sorted(enumerate(others), key=lambda entry: -value(entry[1], where, newest - 1 - entry[0]))
        chosen = [insight for _, insight in ranked[:room]]
    elif settings.policy == "random":
        fresh = [insight for insight in own if insight.iteration >= iteration - 1][-room:] if room else []
        older = [insight for insight in own if insight.iteration < iteration - 1]
        count = min(len(older), room - len(fresh))
        chosen = [*random.Random(seed).sample(older, count), *fresh]
    else:
        chosen = own[-room:] if room else []
    return (*pinned, *chosen)


def value(insight: Insight, where: Applicability, newer: int) -> float:
    """Return the expected usefulness: win-rate with one win and one loss added, halved every ``HALF_LIFE`` newer
    insights.

    Insights of other workloads are weighted by shared tags. Those from other dtypes count half; those with the same
    bottleneck count a little more.
    """
    rate = (insight.wins + 1) / (insight.wins + insight.losses + 2)
    near = 1.0 if insight.run == where.run or set(insight.tags) & set(where.tags) else ELSEWHERE
    same_dtype = 1.0 if not (insight.dtype and where.dtype) or insight.dtype == where.dtype else ELSEWHERE
    same_bound = 1.2 if insight.bound and insight.bound.split()[:1] == where.bound.split()[:1] else 1.0
    return rate * near * same_dtype * same_bound * float(0.5 ** (newer / HALF_LIFE))


def similarity(one: Insight, other: Insight) -> float:
    """Return 0 (nothing in common) to 1 (the same words): Jaccard index of the words, text and pseudo-code half each.

    The kind does not count: a fast form that was undone by mistake teaches the same as one that was found. Insights
    contradict each other, and are not similar, if the slow form of the one is rather the fast form of the other.
    """
    text = _jaccard(f"{one.title} {one.strategy}", f"{other.title} {other.strategy}")
    code = (_jaccard(one.slow, other.slow) + _jaccard(one.fast, other.fast)) / 2
    crossed = (_jaccard(one.slow, other.fast) + _jaccard(one.fast, other.slow)) / 2
    return 0.0 if crossed > code else (text + code) / 2


def novelty(insight: Insight, older: Iterable[Insight]) -> tuple[float, Insight | None]:
    """Return 1 - similarity to the nearest older insight, and that insight."""
    best, nearest = 0.0, None
    for other in older:
        alike = similarity(insight, other)
        if alike > best:
            best, nearest = alike, other
    return 1.0 - best, nearest


def redundancy(insights: Sequence[Insight]) -> float:
    """Return the mean similarity of each insight to its nearest neighbor: 0 all different, 1 all the same."""
    if len(insights) < 2:
        return 0.0
    nearest = [
        max(similarity(one, other) for place, other in enumerate(insights) if place != mine)
        for mine, one in enumerate(insights)
    ]
    return sum(nearest) / len(nearest)


def taught_by(candidate: int, insights: Iterable[Insight]) -> list[Insight]:
    """Return the insights to withdraw when a candidate is found suspect: those whose pair contains it."""
    return [
        insight
        for insight in insights
        if not insight.withdrawn and candidate in (insight.slow_candidate, insight.fast_candidate)
    ]


def kind_of(pair: RewritePair) -> InsightKind:
    """Return positive if the child was the faster one."""
    return InsightKind.POSITIVE if pair.positive else InsightKind.NEGATIVE


def repeated(plans: Sequence[Plan]) -> float:
    """Return the share of plans that repeat an earlier plan for the same parent."""
    seen: dict[int, list[str]] = {}
    repeats = 0
    for plan in (plan for plan in plans if plan.title != NO_PLAN):
        earlier = seen.setdefault(plan.parent, [])
        text = f"{plan.title} {plan.text}"
        repeats += any(_jaccard(text, other) >= TOO_ALIKE for other in earlier)
        earlier.append(text)
    return repeats / len(plans) if plans else 0.0


def _timed(candidate: Candidate) -> bool:
    evaluation = candidate.evaluation
    return (
        evaluation is not None and evaluation.status in (Status.PASSED, Status.UNTESTED) and bool(evaluation.latency_us)
    )


def _validated(candidate: Candidate) -> bool:
    return candidate.evaluation is not None and validated(candidate.evaluation.profile)


def _latency(candidate: Candidate) -> float:
    assert candidate.evaluation is not None and candidate.evaluation.latency_us
    return candidate.evaluation.latency_us


def _program(candidate: Candidate) -> str:
    return candidate.evaluation.program_sha256 if candidate.evaluation else ""


def _jaccard(one: str, other: str) -> float:
    first, second = set(_WORD.findall(one.lower())), set(_WORD.findall(other.lower()))
    if not first and not second:
        return 1.0
    return len(first & second) / len(first | second)
