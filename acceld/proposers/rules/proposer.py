"""The proposer that needs no model: plans are sites of rules, attempts are their variants."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from acceld.model import Attempt, Insight, Plan, Profile
from acceld.proposers.base import AttemptRequest, FirstRequest, FixRequest, PlanRequest, SummaryRequest
from acceld.proposers.rules import all_rules, rule_named
from acceld.proposers.rules.c.reading import CModule
from acceld.proposers.rules.reading import KernelModule
from acceld.proposers.rules.records import Refusing, RuleRefused, Site, Source, Variant
from acceld.proposers.rules.triton.reading import TritonModule

_REMEMBERED = 64

Shapes = tuple[tuple[int, ...] | None, ...]


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A site with the rule it belongs to, as ``acceld suggest`` shows it."""

    site: Site
    change_class: str
    reason: str
    source: str


def suggestions(source: str, api: str, shapes: Shapes = (), profile: Profile | None = None) -> list[Suggestion]:
    """Everything the rules would do to a kernel, best first.

    ``shapes`` are those of the kernel's tensor arguments in order, None for scalars; without them less is proven.
    Raises RuleRefused where the source can not be read.
    """
    kernel = _read(source, api, shapes)
    found = [
        Suggestion(site, rule.change_class, rule.reason, rule.source)
        for rule in all_rules()
        if api in rule.apis
        for site in rule.sites(kernel, profile)
    ]
    return sorted(found, key=lambda one: (-one.site.benefit, one.site.rule, one.site.line, one.site.key))


def refusals(source: str, api: str, shapes: Shapes = ()) -> list[Suggestion]:
    """Places that look right for a rule and where it refuses; the site's precondition is the reason."""
    kernel = _read(source, api, shapes)
    return [
        Suggestion(site, rule.change_class, rule.reason, rule.source)
        for rule in all_rules()
        if api in rule.apis and isinstance(rule, Refusing)
        for site in rule.refusals(kernel)
    ]


def rewrite(source: str, api: str, site: Site, variant: Variant, shapes: Shapes = ()) -> str:
    """The kernel's source after ``variant`` of ``site``. Raises RuleRefused with the reason."""
    return rule_named(site.rule).apply(_read(source, api, shapes), site, variant)


def _everything(source: str, api: str, shapes: Shapes, profile: Profile | None) -> list[Suggestion]:
    found = suggestions(source, api, shapes, profile)
    places = {(one.site.rule, one.site.line, one.site.key) for one in found}
    return found + [
        one for one in refusals(source, api, shapes) if (one.site.rule, one.site.line, one.site.key) not in places
    ]


@lru_cache(maxsize=64)
def _read(source: str, api: str, shapes: Shapes) -> Source:
    if api == "triton":
        return TritonModule(source, api, shapes)
    if api == "c":
        return CModule(source)
    return KernelModule(source, api, shapes)


class RulesProposer:
    """Fills the planner's and executor's roles with rules. Deterministic: the same parent has the same plans."""

    name = "rules"
    repairs = False
    teaches = False

    def __init__(
        self, shapes: Sequence[tuple[int, ...] | None] | None = None, *, order_seed: int | None = None
    ) -> None:
        """``shapes`` of the kernel's arguments; None takes them from the problem's argument lines.

        With ``order_seed`` sites are taken in an order drawn from it instead of the most promising first.
        """
        self._order_seed = order_seed
        self._shapes = None if shapes is None else tuple(shapes)
        self._reading = asyncio.Lock()
        self._found: dict[tuple[str, str, float | None], list[Suggestion]] = {}

    async def first(self, request: FirstRequest) -> str | None:
        """Rules only change kernels."""
        return None

    async def plan(self, request: PlanRequest) -> Plan | None:
        """The plan for the best site that no earlier plan took, ``index`` places further on.

        After the sites come the places where rules refuse: their attempts give no code, and the reason.
        """
        kernel, shapes = request.parent.kernel, self._shapes_of(request.problem.arguments)
        evaluation = request.parent.evaluation
        profile = evaluation.profile if evaluation else None
        key = (kernel.api, kernel.text, profile.latency_us if profile else None)
        async with self._reading:
            if key not in self._found:
                if len(self._found) >= _REMEMBERED:
                    self._found.clear()
                try:
                    self._found[key] = await asyncio.to_thread(_everything, kernel.text, kernel.api, shapes, profile)
                except RuleRefused:
                    return None
            found = self._found[key]
        taken = {(plan.rule, plan.line, str(plan.data.get("key", ""))) for plan in request.earlier}
        open_sites = [one for one in found if (one.site.rule, one.site.line, one.site.key) not in taken]
        if request.index >= len(open_sites):
            return None
        if self._order_seed is not None:
            random.Random(f"{self._order_seed} {request.iteration} {request.place}").shuffle(open_sites)
        chosen = open_sites[request.index]
        site = chosen.site
        return Plan(
            request.run,
            request.iteration,
            request.parent.id,
            request.index,
            f"{site.plan}\nWhy: {chosen.reason} ({chosen.source})\nSafe because {site.precondition}.",
            title=f"{site.rule.replace('_', ' ')}, line {site.line}",
            change_class=chosen.change_class,
            rule=site.rule,
            line=site.line,
            data=_data(site),
        )

    async def attempt(self, request: AttemptRequest) -> Attempt | None:
        """The plan's rule carried out in its variant number ``index``."""
        site = _site(request.plan)
        if request.index >= len(site.variants):
            return None
        kernel, shapes = request.parent.kernel, self._shapes_of(request.problem.arguments)
        try:
            text = await asyncio.to_thread(rewrite, kernel.text, kernel.api, site, site.variants[request.index], shapes)
        except RuleRefused as refusal:
            return Attempt(request.plan.id, request.index, None, refusal.message)
        return Attempt(request.plan.id, request.index, text)

    async def fix(self, request: FixRequest) -> Attempt | None:
        """Rules do not repair."""
        return None

    async def summarize(self, request: SummaryRequest) -> Insight | None:
        """Rules do not teach."""
        return None

    def _shapes_of(self, arguments: Sequence[str]) -> Shapes:
        return self._shapes if self._shapes is not None else tuple(_shape(line) for line in arguments)


def _shape(line: str) -> tuple[int, ...] | None:
    """The shape in an argument line such as ``x: float32 (128, 512)``; None for a scalar."""
    listed = re.search(r"[(\[]\s*(\d+(?:\s*,\s*\d+)*)\s*,?\s*[)\]]", line)
    if listed:
        return tuple(int(extent) for extent in listed.group(1).split(","))
    crossed = re.search(r"\b(\d+(?:x\d+)+)\b", line)
    return tuple(int(extent) for extent in crossed.group(1).split("x")) if crossed else None


def _data(site: Site) -> dict[str, Any]:
    return {
        "key": site.key,
        "precondition": site.precondition,
        "benefit": site.benefit,
        "gain_percent": list(site.gain_percent),
        "variants": [{"name": v.name, "parameters": dict(v.parameters)} for v in site.variants],
    }


def _site(plan: Plan) -> Site:
    variants: Sequence[Mapping[str, Any]] = plan.data.get("variants", ())
    return Site(
        plan.rule,
        plan.line,
        str(plan.data.get("precondition", "")),
        plan.text,
        tuple(Variant(v["name"], v["parameters"]) for v in variants),
        key=str(plan.data.get("key", "")),
    )
