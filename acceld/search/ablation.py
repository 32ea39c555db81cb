"""Run ablations: compare searches that differ in one setting and cost the same. Pure functions.

Every variant may make the same number of candidates, or spend the same USD, and stops only at that limit. A variant
sees only its own insights, so that variants do not learn from each other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from acceld.errors import UsageError, did_you_mean, nearest_of
from acceld.gains import Verdict
from acceld.model import PROPOSERS, KnowledgeLevel, SearchParameters
from acceld.search.comparison import Compared
from acceld.search.forecast import calls_by_role
from acceld.search.memory import POLICIES
from acceld.search.strategies import STRATEGIES

ON = {"on": True, "off": False}

WITHOUT_EFFECT: Mapping[str, str] = {
    "memory": "rewrite rules do not read the memory",
    "fixer": "rewrite rules make no kernels that need repair",
    "knowledge": "rewrite rules read no prompts",
    "planner": "rewrite rules plan and write in one step",
    "tools": "rewrite rules ask no model",
    "top_k": "rewrite rules do not read the memory",
    "memory_size": "rewrite rules do not read the memory",
}
"""Settings that have no effect when rewrite rules make the proposals, each with the reason."""

FIELDS: Mapping[str, str] = {
    "beam": "beam_width",
    "plans": "plans",
    "attempts": "attempts",
    "memory": "memory",
    "top_k": "top_k",
    "memory_size": "memory_size",
    "fixer": "fixer_steps",
    "planner": "planner",
    "tools": "tools",
    "knowledge": "knowledge",
    "strategy": "strategy",
}
"""Names of the settings that can be varied besides the proposer, each with its field of the search parameters."""
PROPOSER = "proposer"


@dataclass(frozen=True, slots=True)
class Cost:
    """Limits on what each run of an ablation may spend. At least one of the two is set."""

    candidates: int | None = None
    usd: float | None = None


@dataclass(frozen=True, slots=True)
class Variant:
    """One column of an ablation's table: how it differs from the base, and the parameters of each repeated search."""

    name: str
    searches: tuple[SearchParameters, ...]
    proposer: str = ""
    """Name of the proposer; empty for the proposer of the base."""


@dataclass(frozen=True, slots=True)
class VariantSummary:
    """The figures of one variant over all its runs."""

    name: str
    runs: tuple[int, ...]
    speedup: float | None
    """Geometric mean of the runs' speed-ups; None if any run has no speed-up."""
    verdict: Verdict | None
    """Most certain verdict that one of the runs' speed-ups has; None if no run has a verdict."""
    improved: int
    """Number of runs whose best kernel is faster than the baseline by more than the noise of the latencies."""
    low: float | None
    """Least speed-up of a run; None if no run has a speed-up. ``high`` is the greatest."""
    high: float | None
    candidates: float
    """Mean number of candidates of a run. ``calls``, ``device_hours`` and ``redundancy`` are means over runs, too."""
    calls: float
    cost_usd: float | None
    """Mean cost of a run in USD; None if the cost of any run is unknown."""
    device_hours: float
    redundancy: float
    unruled_wins: float | None
    """Share of the steps to the best kernels whose class of change is covered by no rewrite rule; None without steps.
    """
    progress: tuple[float, ...]
    """Geometric mean, over the runs, of the best speed-up after 1, 2, 3 ... candidates."""
    warnings: tuple[str, ...]


def parse_vary(words: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Return the values to compare, as a dict by the setting's name, from words such as ``beam=1,3 memory=off,fifo``.
    Raise UsageError for an unknown setting or value.
    """
    found: dict[str, tuple[Any, ...]] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if name not in (*FIELDS, PROPOSER) or not equals:
            hint = did_you_mean(name, (*FIELDS, PROPOSER)) or f"One of {', '.join((*FIELDS, PROPOSER))}, as beam=1,3."
            raise UsageError(f"{word!r} can not be varied", hint=hint)
        found[name] = tuple(dict.fromkeys(_value(name, part.strip()) for part in text.split(",") if part.strip()))
    return found


def parse_cost(words: Sequence[str]) -> Cost:
    """Return the limits in words such as ``candidates=64 usd=2``.

    Raise UsageError for a word of another form.
    """
    cost = Cost()
    for word in words:
        name, _, text = word.partition("=")
        try:
            if name == "candidates" and int(text) > 0:
                cost = replace(cost, candidates=int(text))
                continue
            if name == "usd" and float(text) > 0:
                cost = replace(cost, usd=float(text))
                continue
        except ValueError:
            pass
        raise UsageError(f"{word!r} is not a budget", hint="Write candidates=64, usd=2, or both.")
    return cost


def variants(
    base: SearchParameters,
    vary: Mapping[str, Sequence[Any]],
    cost: Cost,
    *,
    repeats: int,
    grid: bool = False,
    proposers: Mapping[str, SearchParameters] | None = None,
) -> list[Variant]:
    """Return the variants to compare. The first variant is the base. Each further variant changes one setting of the
    base.

    With ``grid`` the variants are all combinations of the values, without the base. If only the proposer is varied, its
    values are the variants, because the base is one of them. ``proposers`` has the base parameters of each proposer,
    because proposers have different settings. Without a cost, the limit is the number of candidates that the base would
    make.
    """
    if cost == Cost():
        cost = Cost(candidates=calls_by_role(base)["executor"])
    if grid:
        changes = [dict(zip(vary, values, strict=True)) for values in itertools.product(*vary.values())]
    else:
        changes = [{}, *({name: value} for name, values in vary.items() for value in values)]
        if set(vary) == {PROPOSER}:
            del changes[0]
    found: dict[tuple[str, SearchParameters], Variant] = {}
    for change in changes:
        proposer = change.get(PROPOSER, "")
        begun = proposers[proposer] if proposers and proposer else base
        search = _at_cost(
            replace(begun, **{FIELDS[name]: value for name, value in change.items() if name != PROPOSER}), cost
        )
        name = " ".join(f"{key}={_said(value)}" for key, value in change.items()) or _base_name(base, vary)
        seeds = tuple(replace(search, seed=search.seed + number) for number in range(repeats))
        found.setdefault((proposer, search), Variant(name, seeds, proposer))
    return list(found.values())


def without_effect(vary: Mapping[str, Sequence[Any]], proposer: str) -> dict[str, str]:
    """Return the varied settings that can have no effect, each with the reason.

    Settings of models have no effect unless ``proposer``, or a proposer among the varied values, uses models.
    """
    if any(PROPOSERS[one].uses_models for one in (proposer, *vary.get(PROPOSER, ()))):
        return {}
    return {name: why for name, why in WITHOUT_EFFECT.items() if name in vary}


def result(name: str, numbers: Sequence[int], runs: Sequence[Compared]) -> VariantSummary:
    """Return the figures of the variant called ``name`` from its runs; ``numbers`` are the runs' ids."""
    speedups = [one.outcome.speedup for one in runs]
    known = [value for value in speedups if value is not None]
    costs = [one.cost_usd for one in runs]
    shares = [one.unruled_wins for one in runs if one.unruled_wins is not None]
    warnings = {sign.name: f"{sign.text}. {sign.hint}" for one in runs for sign in one.signs}
    return VariantSummary(
        name=name,
        runs=tuple(numbers),
        speedup=_geomean(known) if known and len(known) == len(speedups) else None,
        verdict=min(
            (one.outcome.verdict for one in runs if one.outcome.verdict), key=list(Verdict).index, default=None
        ),
        improved=sum(one.outcome.improved for one in runs),
        low=min(known, default=None),
        high=max(known, default=None),
        candidates=sum(len(one.progress) for one in runs) / len(runs),
        calls=sum(one.calls for one in runs) / len(runs),
        cost_usd=None if any(cost is None for cost in costs) else sum(cost or 0.0 for cost in costs) / len(runs),
        device_hours=sum(one.device_hours for one in runs) / len(runs),
        redundancy=sum(one.redundancy for one in runs) / len(runs),
        unruled_wins=sum(shares) / len(shares) if shares else None,
        progress=_together([one.progress for one in runs]),
        warnings=tuple(warnings.values()),
    )


def _value(name: str, text: str) -> Any:
    known = {
        PROPOSER: PROPOSERS,
        "memory": POLICIES,
        "strategy": STRATEGIES,
        "planner": tuple(ON),
        "tools": tuple(ON),
        "knowledge": get_args(KnowledgeLevel),
    }.get(name)
    if known is not None:
        if text not in known:
            raise UsageError(f"{name}={text}: {text!r} is unknown", hint=nearest_of(text, known))
        return ON.get(text, text) if name in ("planner", "tools") else text
    least = 0 if name in ("fixer", "top_k") else 1
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < least:
        raise UsageError(f"{name}={text}: a whole number of at least {least} is needed")
    return number


def _at_cost(search: SearchParameters, cost: Cost) -> SearchParameters:
    """Return the search parameters with the cost as the only stop condition."""
    most = cost.candidates if cost.candidates is not None else 1000
    return replace(
        search,
        iterations=most,
        candidates=cost.candidates,
        budget_usd=cost.usd if cost.usd is not None else search.budget_usd,
        patience=0,
        target_percent=None,
        max_usd_per_percent=None,
        time_limit_s=None,
        own_insights=True,
    )


def _base_name(base: SearchParameters, vary: Mapping[str, Sequence[Any]]) -> str:
    return "base: " + " ".join(f"{name}={_said(getattr(base, FIELDS[name]))}" for name in vary if name != PROPOSER)


def _said(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _geomean(values: Sequence[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values))


def _together(curves: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return the geometric mean of several runs' curves at each step. A curve that ends earlier keeps its last value."""
    curves = [curve for curve in curves if curve]
    longest = max((len(curve) for curve in curves), default=0)
    return tuple(_geomean([curve[min(step, len(curve) - 1)] for curve in curves]) for step in range(longest))
