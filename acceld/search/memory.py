"""Manage the memory of insights: choose the rewrites that teach, and the insights that are shown, merged or withdrawn.
Pure functions.

The memory follows AccelOpt (arXiv 2511.15915, section 3). Each iteration writes at most TopK new insights, at most
half of them positive, from pairs of a parent and a child whose latencies differ by more than a threshold; the memory
holds ExpN insights. Four things differ from the paper. A pair inside the noise teaches only a hypothesis. The attempts
at one plan may teach both their best and their worst child. Pairs come only from kernels that pass the strict gate.
Rewrites that change the same confirm one insight (:mod:`acceld.search.effects`).
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from acceld.model import (
    SIMULATED_LESSON_PERCENT,
    Candidate,
    Held,
    Insight,
    InsightKind,
    MemoryPolicy,
    Plan,
    Source,
    Status,
)
from acceld.proposers.interface import NO_PLAN, RewritePair
from acceld.search.beam import is_validated

POLICIES = get_args(MemoryPolicy)

TOO_ALIKE = 0.8
"""Similarity (0 to 1) from which a new insight counts as the same as an older insight."""

HALF_LIFE = 32
"""In the memory policy ``value``: number of newer insights after which an insight that was neither tried nor confirmed
has half its weight.
"""

ELSEWHERE = 0.5
"""In the memory policy ``value``: weight of an insight from a workload without a common tag, or from other dtypes."""

OTHER_CHIP = 0.8
"""In the memory policy ``value``: weight of an insight that never held on the run's chip. Often the idea holds on the
run's chip too, but not the size of the speed-up.
"""

OTHER_API = 0.7
"""In the memory policy ``value``: weight of an insight that never held in the run's API, where the calls have other
names.
"""

SAME_CHANGE = 0.7
"""In the memory policy ``value``: weight for each insight of the same change class that is chosen already, so that
planners get different directions.
"""

HYPOTHESIS = 0.5
"""In the memory policy ``value``: weight of an insight whose own speed-up is a tie."""

HYPOTHESES = 2
"""Limit on the new hypotheses of an iteration."""

TRIES = 6
"""Number of plans with a known outcome that cited an insight, from which on an insight that seldom won is no longer shown."""

SELDOM = 1 / 6
"""Share of the plans with a known outcome that cited an insight and won. Below this share the insight is no longer shown."""

RULES = 8
"""Limit on the rules of a playbook."""

IDEAS = 3
"""Limit on the ideas that a rule of a playbook names."""

PLAYBOOK_CHARS = 6000
"""Limit on the characters of a person's playbook."""

OPERATION_WORDS: Mapping[str, str] = {
    "matmul": r"\b(nc_)?matmul\w*\b|\bdot\b|\bmma",
    "transpose": r"transpose",
    "exponential": r"\bexp\b|\bexpf\b|\bsoftmax\b",
    "normalization": r"\brsqrt\w*\b|bn_stats|\bvar\b",
    "reduction": r"reduce|\bsum\b|\bmean\b|\bmax\b",
    "division": r"reciprocal|divide",
    "scan": r"scan|cumsum",
    "gather": r"gather|indirect|\btake\b",
    "elementwise": r"tensor_tensor|tensor_scalar|scalar_tensor|activation|\bmultiply\b|\badd\b|\bsilu\b",
}
"""Kinds of operations with the words that name them in kernels of any API."""

_WORD = re.compile(r"[a-z_][a-z0-9_]*|\d+")


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """The settings of the memory. Comments give the paper's names."""

    policy: str = "off"
    capacity: int = 16  # ExpN in the paper
    top_k: int = 8  # TopK in the paper
    t_pos: float = 1.04
    t_neg: float = 1.15
    show_simulated: bool = False
    """True if a run with measured latencies also sees insights from simulations, marked as unverified."""
    own: bool = False
    """True if a run sees only its own insights, without insights that other runs pinned. Ablations set this to True."""

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ValueError(f"there is no memory policy {self.policy!r}; there are {', '.join(POLICIES)}")
        if self.t_pos < 1 or self.t_neg < 1:
            raise ValueError("t_pos and t_neg are ratios of at least 1")


@dataclass(frozen=True, slots=True)
class Applicability:
    """The circumstances of a run (chip, API, bottleneck ...), by which insights are chosen for the run."""

    run: int
    chip: str
    api: str
    sdk: str = ""
    source: Source = Source.SIMULATED
    tags: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()
    """Bottlenecks of the kernels that are to be improved."""
    operations: frozenset[str] = frozenset()
    """Kinds of operations of the kernels that are to be improved."""
    dtype: str = ""


def noise(candidate: Candidate) -> float:
    """Return the noise of a candidate's speed-up over its parent, as a fraction; 0 if no profile has the noise.

    A difference below the noise teaches only a hypothesis.
    """
    profile = candidate.evaluation.profile if candidate.evaluation else None
    if profile is None:
        return 0.0
    if (percent := profile.details.get("tie_percent")) is not None:
        return float(percent) / 100.0
    if profile.source is Source.SIMULATED:
        return SIMULATED_LESSON_PERCENT / 100.0
    if against := profile.details.get("paired"):  # a candidate's comparison with its parent comes first
        return float(against[0]["band_percent"]) / 100.0
    if profile.latency_us and profile.resolution_us:
        return 2.0 * profile.resolution_us / profile.latency_us
    return 0.0


def rewrites(
    candidates: Iterable[Candidate], plans: Mapping[int, Plan], settings: MemorySettings
) -> tuple[list[RewritePair], list[RewritePair]]:
    """Return the pairs of kernels from which an insight could be learned, best first.

    The result is (positive pairs (parent, child), negative pairs (child, parent)). Of the attempts at one plan, the
    best and the worst child are offered. A child is left out if its program equals its parent's or was offered
    before. A pair is left out if one of its latencies has no validated interval.

    A pair whose latencies differ by less than the noise comes last and teaches only a hypothesis. Its ``tie_percent``
    is the noise; the ``tie_percent`` of any other pair is None.
    """
    by_id = {candidate.id: candidate for candidate in candidates}
    groups: dict[tuple[int, int | None], list[tuple[float, Candidate]]] = {}
    for child in sorted(by_id.values(), key=lambda candidate: candidate.order):
        parent = by_id.get(child.parent) if child.parent is not None else None
        if parent is None or not (_timed(parent) and _timed(child)) or _program(parent) == _program(child):
            continue
        if not (is_validated(parent) and is_validated(child)):
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
            band = 100.0 * noise(child)
            if ratio > settings.t_pos:
                tie = None if ratio > least else band
                positive.append(RewritePair(by_id[parent_id], child, ratio, True, plan, tie))
                seen.add(key)
            elif 1.0 / ratio > settings.t_neg:
                slowdown = _latency(child) / _latency(by_id[parent_id])
                tie = None if slowdown > least else band
                negative.append(RewritePair(child, by_id[parent_id], slowdown, False, plan, tie))
                seen.add(key)
    positive.sort(key=lambda pair: (pair.tie_percent is not None, -pair.speedup, pair.fast.order))
    negative.sort(key=lambda pair: (pair.tie_percent is not None, -pair.speedup, pair.slow.order))
    return positive, negative


def quota(top_k: int, positives: int) -> tuple[int, int]:
    """Return (number of positive pairs, number of negative pairs) to summarize, together at most ``top_k``.

    At most half are positive; negative pairs fill the rest. ``positives`` is the number of available positive pairs.
    """
    taken = min(positives, top_k // 2)
    return taken, top_k - taken


def applies(insight: Insight, where: Applicability, settings: MemorySettings) -> bool:
    """Return True if an insight may be shown in a run with the circumstances ``where``.

    Only the policy ``value`` shows insights of other chips and APIs.
    """
    if insight.muted or insight.withdrawn or (settings.own and insight.run != where.run):
        return False
    if retired(insight) and not insight.pinned:
        return False
    is_elsewhere = insight.chip not in ("", where.chip) or insight.api not in ("", where.api)
    if is_elsewhere and settings.policy != "value":
        return False
    return trusted(insight, where, settings)


def trusted(insight: Insight, where: Applicability, settings: MemorySettings) -> bool:
    """Return True if an insight may be trusted: it was measured, or the run simulates too, or the settings show
    simulated insights.
    """
    is_simulated = where.source is Source.MEASURED and insight.source is Source.SIMULATED
    return settings.show_simulated or not is_simulated


def retired(insight: Insight) -> bool:
    """Return True if plans that cited the insight have won so seldom that it is no longer shown."""
    decided = insight.wins + insight.losses
    return decided >= TRIES and insight.wins < SELDOM * decided


def held_at(insight: Insight, chip: str, api: str) -> bool:
    """Return True if the insight held on a chip in an API, or if the insight does not say where it held."""
    return any(place.chip in ("", chip) and place.api in ("", api) for place in _places(insight))


def _places(insight: Insight) -> tuple[Held, ...]:
    """Return the places where an insight held; if no places are recorded, the place where its own pair of kernels was
    evaluated.
    """
    return insight.held or (Held(insight.chip, insight.api, "", insight.source, insight.speedup),)


def confirmed(insight: Insight, held_at: Iterable[Held]) -> tuple[Held, ...]:
    """Return the places where an insight held, joined with those of a rewrite that taught the same."""
    held = list(insight.held)
    for place in held_at:
        at = [(one.chip, one.api, one.workload, one.source) for one in held]
        key = (place.chip, place.api, place.workload, place.source)
        if key in at:
            known = held[at.index(key)]
            held[at.index(key)] = replace(
                known,
                times=known.times + place.times,
                speedup=max(known.speedup, place.speedup),
                by=(*known.by, *place.by),
            )
        else:
            held.append(place)
    return tuple(held)


def operations_of(*sources: str) -> frozenset[str]:
    """Return the kinds of operations (such as matmul or reduce) that occur in kernels' sources."""
    text = "\n".join(sources)
    return frozenset(kind for kind, words in OPERATION_WORDS.items() if re.search(words, text))


def unverified(insight: Insight, where: Applicability) -> bool:
    """Return True if the insight must be shown as unverified.

    It is unverified if it was simulated and the run measures, or if it was measured under another SDK.
    """
    if insight.source is not where.source:
        return insight.source is Source.SIMULATED
    return bool(insight.sdk and where.sdk and insight.sdk != where.sdk)


def shown(
    insights: Iterable[Insight], where: Applicability, settings: MemorySettings, iteration: int, seed: int
) -> tuple[Insight, ...]:
    """Return the insights for planners, at most ``capacity``: pinned ones first, then the choice of the policy.

    The policy ``fifo`` (the paper's) takes the run's latest insights. ``random`` (the policy of the paper's published
    code) takes the insights of the previous iteration, and a sample of the run's older insights. ``value`` takes the
    most useful insights of all runs, chips and APIs.
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
        chosen = _varied([(value(one, where, newest - 1 - at), one) for at, one in enumerate(others)], room)
    elif settings.policy == "random":
        fresh = [insight for insight in own if insight.iteration >= iteration - 1][-room:] if room else []
        older = [insight for insight in own if insight.iteration < iteration - 1]
        count = min(len(older), room - len(fresh))
        chosen = [*random.Random(seed).sample(older, count), *fresh]
    else:
        chosen = own[-room:] if room else []
    return (*pinned, *chosen)


def value(insight: Insight, where: Applicability, newer: int) -> float:
    """Return the expected usefulness of an insight for a run; greater is better.

    The result is the insight's win rate times weights. In the win rate, each confirmation counts as a win, and one
    more win and one more loss are added. The weights say how alike this run and the run are in which the insight was
    learned: bottleneck, operations (tags, if the operations are unknown), dtype, chip and API. A hypothesis that
    nothing confirmed counts less. ``newer`` is the number of newer insights: an insight that was neither tried nor
    confirmed loses weight with age.
    """
    wins = insight.wins + insight.confirmations
    rate = (wins + 1) / (wins + insight.losses + 2)
    if insight.run == where.run:
        near = 1.0
    elif insight.operations and where.operations:
        shared = len(where.operations.intersection(insight.operations)) / len(insight.operations)
        near = ELSEWHERE + (1.0 - ELSEWHERE) * shared
    else:
        near = 1.0 if set(insight.tags) & set(where.tags) else ELSEWHERE
    same_dtype = 1.0 if not (insight.dtype and where.dtype) or insight.dtype == where.dtype else ELSEWHERE
    bound = insight.bound.lower().split()[:1]
    same_bound = 1.2 if bound and bound in [one.lower().split()[:1] for one in where.bounds] else 1.0
    chips = {place.chip for place in _places(insight)}
    apis = {place.api for place in _places(insight)}
    same_chip = 1.0 if chips & {"", where.chip} else OTHER_CHIP
    same_api = 1.0 if apis & {"", where.api} else OTHER_API
    sure = 1.0 if insight.tie_percent is None or insight.confirmations else HYPOTHESIS
    age = 1.0 if insight.wins + insight.losses + insight.confirmations else float(0.5 ** (newer / HALF_LIFE))
    return rate * near * same_dtype * same_bound * same_chip * same_api * sure * age


def _varied(rated: Sequence[tuple[float, Insight]], room: int) -> list[Insight]:
    """Return at most ``room`` insights with the highest ratings, of as many change classes as possible.

    Each insight of a class that is chosen lowers the rating of the others in the class.
    """
    left, chosen = sorted(rated, key=lambda one: -one[0]), list[Insight]()
    while left and len(chosen) < room:
        taken = [insight.change for insight in chosen if insight.change]
        best = max(range(len(left)), key=lambda at: (left[at][0] * SAME_CHANGE ** taken.count(left[at][1].change), -at))
        chosen.append(left.pop(best)[1])
    return chosen


def similarity(one: Insight, other: Insight) -> float:
    """Return how alike two insights are, from 0 (no common words) to 1 (the same words).

    The similarity is the Jaccard index of the words; text and pseudo-code count half each. It does not matter whether
    an insight is positive or negative, because a fast form that was undone teaches the same as a fast form that was
    found. The result is 0 if two insights contradict each other: the slow form of one insight is more like the fast
    form of the other.
    """
    text = _jaccard(f"{one.title} {one.strategy}", f"{other.title} {other.strategy}")
    code = (_jaccard(one.slow, other.slow) + _jaccard(one.fast, other.fast)) / 2
    crossed = (_jaccard(one.slow, other.fast) + _jaccard(one.fast, other.slow)) / 2
    return 0.0 if crossed > code else (text + code) / 2


def novelty(insight: Insight, older: Iterable[Insight]) -> tuple[float, Insight | None]:
    """Return (1 minus the similarity to the most similar older insight, that insight); (1, None) if no older insight
    has common words.
    """
    best, nearest = 0.0, None
    for other in older:
        alike = similarity(insight, other)
        if alike > best:
            best, nearest = alike, other
    return 1.0 - best, nearest


def redundancy(insights: Sequence[Insight]) -> float:
    """Return how much insights repeat each other, from 0 (all differ) to 1: the mean, over the insights, of the
    similarity to the most similar other insight.
    """
    if len(insights) < 2:
        return 0.0
    nearest = [
        max(similarity(one, other) for place, other in enumerate(insights) if place != mine)
        for mine, one in enumerate(insights)
    ]
    return sum(nearest) / len(nearest)


def playbook(insights: Iterable[Insight]) -> tuple[str, ...]:
    """Return a few rules that sum up many insights, the best supported first, each with the ids of its insights.

    A rule joins insights with the same bottleneck and change class, if two rewrites taught these insights or two plans
    won with them.
    """
    groups: dict[tuple[str, str], list[Insight]] = {}
    for insight in insights:
        is_sure = insight.tie_percent is None or insight.confirmations
        if is_sure and insight.change and not (insight.muted or insight.withdrawn or retired(insight)):
            bound = (insight.bound.lower().split() or [""])[0]
            groups.setdefault((bound, insight.change), []).append(insight)
    rules = []
    for (bound, change), members in groups.items():
        members.sort(key=lambda one: (-one.wins - one.confirmations, -one.speedup, one.id))
        rewrites = sum(one.confirmations + 1 for one in members)
        wins, decided = sum(one.wins for one in members), sum(one.wins + one.losses for one in members)
        if max(rewrites, wins) < 2:
            continue
        chips = sorted({place.chip for one in members for place in _places(one)})
        ideas = "; ".join(dict.fromkeys(one.title for one in members[:IDEAS]))
        tried = f"; plans won with it {wins} of {decided} times" if decided else ""
        where = f"Where {bound} is the bottleneck" if bound else "Anywhere"
        sources = ", ".join(f"i{one.id}" for one in members)
        best = max(one.speedup for one in members)
        rule = f"{where} (class {change}): {ideas} [{rewrites} rewrites on {', '.join(chips)}, up to {best:.2f} times{tried}; {sources}]"
        rules.append((rewrites + wins, rule))
    return tuple(rule for _, rule in sorted(rules, key=lambda one: -one[0])[:RULES])


def taught_by(candidate: int, insights: Iterable[Insight]) -> list[Insight]:
    """Return the insights that a candidate taught, as the slow or as the fast kernel. Callers withdraw them if the
    candidate is found suspect.
    """
    return [
        insight
        for insight in insights
        if not insight.withdrawn and candidate in (insight.slow_candidate, insight.fast_candidate)
    ]


def kind_of(pair: RewritePair) -> InsightKind:
    """Return whether a pair teaches a positive insight (the child is faster than its parent) or a negative one."""
    return InsightKind.POSITIVE if pair.positive else InsightKind.NEGATIVE


def repeated(plans: Sequence[Plan]) -> float:
    """Return the share (0 to 1) of plans that repeat an earlier plan for the same parent."""
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
