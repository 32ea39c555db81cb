"""Define the interface of rewrite rules, and the records that rules return."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from acceld.errors import RuleRefused
from acceld.model import Plan, Profile
from acceld.proposers.rules.profiles import busy_share

Parsed = Any
"""A parsed kernel: a ``KernelModule`` for NKI, a ``TritonModule`` for Triton, a ``CModule`` for C."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to carry out a rewrite at a place, such as one of several tile widths. Each variant becomes one attempt
    of the search. ``parameters`` can be written as JSON.
    """

    name: str
    parameters: Mapping[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Site:
    """A place in a kernel's source where a rule applies or refuses, described for people and for the search."""

    rule: str
    line: int
    precondition: str
    """The proved precondition, in a sentence; empty where the rule refuses."""
    plan: str
    """The change and its reason, in the words of a planner."""
    variants: tuple[Variant, ...]
    benefit: float = 1.0
    """Expected effect, for ranking: a rough share of the latency, 0 to 1."""
    gain_percent: tuple[float, float] = (0.0, 10.0)
    """Expected saving of latency as a range in percent, as shown to people."""
    key: str = ""
    """Text that distinguishes several places of one rule on one line."""
    obstacle: str = ""
    """Reason why the rule refuses; empty where it applies."""


def rewrite_name(rule: str, variant: str, line: int, key: str) -> str:
    """Return the name of a rewrite, such as ``drain_once 512 columns, line 12``. The name is the same for all kernels
    that have the place at this line.
    """
    return f"{rule} {variant}, line {line}{key and f' ({key})'}"


def rewrites_of(plan: Plan, attempt: int) -> tuple[str, ...]:
    """Return the names of the rewrites that attempt number ``attempt`` at a plan makes; () if rules did not make the
    plan, or if the plan has no such attempt.
    """
    if "steps" in plan.data:
        return tuple(plan.data["steps"])
    variants = plan.data.get("variants", ())
    if not plan.rule or attempt >= len(variants):
        return ()
    return (rewrite_name(plan.rule, variants[attempt]["name"], plan.line, str(plan.data.get("key", ""))),)


def reason_at(line: int, reason: str) -> str:
    """Return the reason of a refusal for a reader who already knows that the rule refuses at ``line``.

    A reason may begin with the line of the obstacle, such as ``line 15: i is a sequential_range``. For another
    ``line`` the text becomes ``prevented by line 15: i is a sequential_range``; for line 15 the number is left out.
    """
    found = re.match(r"line (\d+): ", reason)
    if found is None:
        return reason
    return reason[found.end() :] if int(found[1]) == line else f"prevented by {reason}"


@dataclass(frozen=True, slots=True)
class Place:
    """A site together with the function that rewrites the kernel there. ``rewrite`` is None if the rule refuses at the
    site.
    """

    site: Site
    rewrite: Callable[[Variant], str] | None
    """Returns the kernel's new source for a variant; may still raise RuleRefused."""


class Rule(ABC):
    """One kind of rewrite of a kernel's source, useful for a documented reason in the hardware. A rule sees kernels,
    never workloads.
    """

    name: str
    reason: str
    """The documented behavior of the hardware that makes the rewrite useful."""
    source: str
    """The document that describes this behavior."""
    apis: frozenset[str]
    only: str = ""
    """Reason why the rule applies to only one of the two APIs of NKI; empty for a rule that applies to both."""
    change_class: str
    """One of loop_order, tile_width, fusion, engine, spill, dma, or mixed."""
    relieves: tuple[str, ...] = ()
    """Engines that get less work by the rewrite. The tuple is empty if the benefit of the rewrite does not depend on
    how busy the engines are, or already takes into account how busy they are.
    """
    everywhere: bool = False
    """True if a tuner may also apply the rule at all places by a single move, with the first variant at each place."""

    @abstractmethod
    def find(self, kernel: Parsed, profile: Profile | None) -> Iterator[Place]:
        """Yield each place in ``kernel`` that matches the rule's pattern.

        If the preconditions are proved, the place has the rewrite. Otherwise it has the reason why the rule refuses.
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
    ) -> Place:
        """Return a place where the rule applies. The arguments are the fields of :class:`Site`."""
        return Place(Site(self.name, line, precondition, plan, variants, benefit, gain_percent, key), rewrite)

    def promise(self, site: Site, profile: Profile | None) -> float:
        """Return the share of the latency (0 to 1) that a rewrite at ``site`` is expected to save.

        This is the site's benefit times the busy share of the busiest engine in ``relieves``. If the profile has none
        of these engines, as on other devices, the result is the benefit alone.
        """
        known = [name.lower() for name in profile.engines_us] if profile is not None else []
        relieved = [engine for engine in self.relieves if any(engine in name for name in known)]
        if not relieved or profile is None or not profile.latency_us:
            return site.benefit
        return site.benefit * min(1.0, max(busy_share(profile, engine) for engine in relieved))

    def refused(self, line: int, reason: str, wish: str, key: str = "") -> Place:
        """Return a place where the rule refuses. ``wish`` is the change that the rule would have made, and ``reason``
        says why the rule does not make this change.
        """
        plan = f"{wish}. What prevents it: {reason}."
        return Place(Site(self.name, line, "", plan, (Variant("as planned"),), 0.0, key=key, obstacle=reason), None)

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
    ) -> Place:
        """Return a place where the rule applies if ``obstacle`` is "", else a place where the rule refuses with
        ``obstacle`` as the reason.
        """
        if obstacle:
            return self.refused(line, obstacle, wish, key)
        return self.found(
            line,
            rewrite,
            *variants,
            precondition=precondition,
            plan=plan,
            benefit=benefit,
            gain_percent=gain_percent,
            key=key,
        )

    def apply(self, kernel: Parsed, site: Site, variant: Variant) -> str:
        """Return the kernel's new source after ``variant`` at ``site``.

        Raise RuleRefused with the reason if the rule refuses at the site, or does not find the site or the variant.
        """
        for one in self.find(kernel, None):
            if (one.site.line, one.site.key) != (site.line, site.key):
                continue
            if one.rewrite is None:
                raise RuleRefused(one.site.obstacle)
            if variant in one.site.variants:
                return one.rewrite(variant)
        raise RuleRefused(f"line {site.line}: {self.name} ({variant.name}) does not apply there")
