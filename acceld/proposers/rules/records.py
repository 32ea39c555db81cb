"""Interface and records of rewrite rules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from acceld.errors import RuleRefused
from acceld.model import Plan, Profile
from acceld.proposers.rules.profiles import busy_share

Source = Any
"""A kernel's parsed source: a ``KernelModule`` for NKI, a ``TritonModule`` for Triton, a ``CModule`` for C."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to carry out a place's plan, which becomes an attempt. ``parameters`` are JSON-able."""

    name: str
    parameters: Mapping[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Site:
    """A place in a kernel where a rule applies."""

    rule: str
    line: int
    precondition: str
    """The proven precondition, in a sentence."""
    plan: str
    """The change and its reason, worded like a plan of a planner."""
    variants: tuple[Variant, ...]
    benefit: float = 1.0
    """Expected effect for ranking: a rough share of the latency, 0 to 1."""
    gain_percent: tuple[float, float] = (0.0, 10.0)
    """Expected effect on the latency, as a range shown to people."""
    key: str = ""
    """Distinguishes places of one rule on one line."""


def rewrite_name(rule: str, variant: str, line: int, key: str) -> str:
    """Return the name of one rewrite of a kernel; equal for the same rewrite of another kernel at the same line."""
    return f"{rule} {variant}, line {line}{key and f' ({key})'}"


def rewrites_of(plan: Plan, attempt: int) -> tuple[str, ...]:
    """Return the names of the rewrites that an attempt at a plan makes; none if rules did not make the plan."""
    if "steps" in plan.data:
        return tuple(plan.data["steps"])
    variants = plan.data.get("variants", ())
    if not plan.rule or attempt >= len(variants):
        return ()
    return (rewrite_name(plan.rule, variants[attempt]["name"], plan.line, str(plan.data.get("key", ""))),)


@dataclass(frozen=True, slots=True)
class Finding:
    """A place and the function that rewrites it. Without ``rewrite``: a place that matches the pattern, but at which
    the rule refuses.
    """

    site: Site
    rewrite: Callable[[Variant], str] | None
    """Returns the kernel's new source. May still raise RuleRefused."""


class Rule(ABC):
    """A source-to-source rewrite with a hardware reason. Rules see kernels, never workloads."""

    name: str
    reason: str
    """The documented behavior of the hardware that makes it useful."""
    source: str
    """The document that describes this behavior."""
    apis: frozenset[str]
    change_class: str
    """loop_order, tile_width, fusion, engine, spill, dma or mixed."""
    relieves: tuple[str, ...] = ()
    """Engines that get less work. Empty if the benefit does not depend on how busy they are, or already counts it."""
    everywhere: bool = False
    """True if a tuner may also apply it at all its places by one move, the first variant at each."""

    @abstractmethod
    def find(self, kernel: Source, profile: Profile | None) -> Iterator[Finding]:
        """Yield the places in ``kernel`` where the rule applies, with proven preconditions, and the places at which it
        refuses.
        """

    def found(
        self,
        line: int,
        rewrite: Callable[[Variant], str],
        *variants: Variant,
        precondition: str,
        plan: str,
        benefit: float,
        gain_percent: tuple[float, float],
        key: str = "",
    ) -> Finding:
        """Return a place where the rule applies; the arguments are those of :class:`Site`."""
        return Finding(Site(self.name, line, precondition, plan, variants, benefit, gain_percent, key), rewrite)

    def promise(self, site: Site, profile: Profile | None) -> float:
        """Return the share of the latency that a place is expected to save: its benefit, times the busy share of the
        busiest engine that the rule relieves. It is the benefit alone if the profile, for example a device's, does not
        have these engines.
        """
        known = [name.lower() for name in profile.engines_us] if profile is not None else []
        relieved = [engine for engine in self.relieves if any(engine in name for name in known)]
        if not relieved or profile is None or not profile.latency_us:
            return site.benefit
        return site.benefit * min(1.0, max(busy_share(profile, engine) for engine in relieved))

    def refused(self, line: int, reason: str, wish: str, key: str = "") -> Finding:
        """Return a place where the rule refuses; ``wish`` describes the change that it does not make, ``reason`` why."""
        plan = f"{wish}. What keeps it: {reason}."
        return Finding(Site(self.name, line, reason, plan, (Variant("as planned"),), 0.0, key=key), None)

    def answer(
        self,
        line: int,
        obstacle: str,
        wish: str,
        rewrite: Callable[[Variant], str],
        *variants: Variant,
        precondition: str,
        plan: str,
        benefit: float = 0.1,
        gain_percent: tuple[float, float] = (0.0, 10.0),
        key: str = "",
    ) -> Finding:
        """Return a place where the rule applies; where it refuses, if there is an obstacle to what it wishes to do."""
        if obstacle:
            return self.refused(line, obstacle, wish, key)
        given = {"precondition": precondition, "plan": plan, "benefit": benefit, "gain_percent": gain_percent}
        return self.found(line, rewrite, *variants, **given, key=key)  # type: ignore[arg-type]

    def sites(self, kernel: Source, profile: Profile | None) -> list[Site]:
        """Return the places where the rule applies."""
        return [one.site for one in self.find(kernel, profile) if one.rewrite is not None]

    def refusals(self, kernel: Source) -> list[Site]:
        """Return the places that match the rule's pattern, but at which the rule refuses, with the reason as
        precondition.
        """
        return [one.site for one in self.find(kernel, None) if one.rewrite is None]

    def apply(self, kernel: Source, site: Site, variant: Variant) -> str:
        """Return the kernel's new source. Raises RuleRefused with the reason."""
        for one in self.find(kernel, None):
            if (one.site.line, one.site.key) != (site.line, site.key):
                continue
            if one.rewrite is None:
                raise RuleRefused(one.site.precondition)
            if variant in one.site.variants:
                return one.rewrite(variant)
        raise RuleRefused(f"line {site.line}: {self.name} ({variant.name}) does not apply there")
