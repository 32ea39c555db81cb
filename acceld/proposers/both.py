"""Combine models and rewrite rules in one proposer.

Plans of rules and of models alternate, and models are told which changes the rules make anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from acceld.figures import duration
from acceld.model import PROPOSERS, Attempt, Candidate, Insight, Plan
from acceld.proposers.interface import AttemptRequest, FirstRequest, FixRequest, PlanRequest, Proposer, SummaryRequest
from acceld.proposers.rules.proposer import RulesProposer
from acceld.proposers.rules.records import Site, reason_at
from acceld.proposers.rules.tuner import Tuned

TOLD = 6
"""Greatest number of applicable rewrites, and of refused rewrites, that models are told."""

LEAST_GAIN = 0.01
"""Least share of a parent's latency that a sequence of rewrites must save, by simulation, to be a plan. For less, models
make the plan: the candidate costs as much, and promises more.
"""
SEQUENCES = 2
"""Greatest number of timed sequences of rewrites that models are told."""


class BothProposer:
    """Let rules make plans 0, 2, 4 ... of a parent, and models plans 1, 3, 5 ...

    When rules have no more plans, or none that saves ``LEAST_GAIN``, models plan alone. Rules come first, so that with
    few candidates left every parent still gets its best rewrites. Rules that tune whole sequences make one plan for a
    parent only: that plan already has the gains of further rewrites. Planner and executor are told which changes the
    rules would make, and where and why rules refuse. Only models repair, write first kernels and find insights.
    """

    name = "both"
    abilities = PROPOSERS[name]

    def __init__(self, models: Proposer, rules: RulesProposer) -> None:
        self.models = models
        self.rules = rules

    def end_when(self, is_over: Callable[[], bool]) -> None:
        """End the tuning of a parent as soon as ``is_over`` returns True."""
        self.rules.end_when(is_over)

    async def first(self, request: FirstRequest) -> str | None:
        """Return a first kernel that a model wrote; None if no model gave code."""
        return await self.models.first(request)

    async def plan(self, request: PlanRequest) -> Plan | None:
        """Return a plan made by rules or by models; None if neither has a further plan.

        Rules make the plan of a crossover if rules made every step of the partner.
        """
        crossed = await self.rules.crossed(request)
        if crossed is not None:
            return crossed
        if request.index % 2 == 0 and request.partner is None and await self._rules_gain(request):
            ruled = await self.rules.plan(replace(request, index=request.index // 2))
            if ruled is not None:
                return replace(ruled, index=request.index)
        notes = await self._notes(request)
        return await self.models.plan(replace(request, notes=(*request.notes, *notes)))

    async def _rules_gain(self, request: PlanRequest) -> bool:
        """Return False if the fastest sequence of rewrites that was timed saves less than ``LEAST_GAIN``."""
        parent = request.parent
        latency_us = parent.evaluation.latency_us if parent.evaluation else None
        tuned = await self.rules.tuned(parent, request.problem)
        return not tuned or not latency_us or tuned[0].latency_us <= (1.0 - LEAST_GAIN) * latency_us

    async def attempt(self, request: AttemptRequest) -> Attempt | None:
        """Return an attempt by the proposer that made the plan: rules for a rule's plan, else models. Return None if
        there is no further attempt.
        """
        if request.plan.rule:
            return await self.rules.attempt(request)
        plan = request.plan
        reported = "\n".join((plan.text, *await self._notes(request)))
        return await self.models.attempt(replace(request, plan=replace(plan, text=reported)))

    async def fix(self, request: FixRequest) -> Attempt | None:
        """Return a kernel that models have repaired; None if no model repairs the kernel."""
        return await self.models.fix(request)

    async def summarize(self, request: SummaryRequest) -> Insight | None:
        """Return an insight that models find; None if models find no insight."""
        return await self.models.summarize(request)

    async def _notes(self, request: PlanRequest | AttemptRequest) -> tuple[str, ...]:
        """Return lines for a model's prompt: the timed sequences of rewrites on the parent, the rewrites that rules
        would make, and the places where rules refuse.
        """
        applicable, refused = await self.rules.findings(request.parent, request.problem)
        notes = list(_timed(await self.rules.tuned(request.parent, request.problem), request.parent))
        if applicable:
            notes.append("Rewrite rules do the following without you, so aim at what they can not do:")
            notes += [f"- line {site.line}: {_named(site)}, {_expected(site)}" for site in applicable[:TOLD]]
        if refused:
            notes.append("Rewrite rules refuse the following. A kernel without these obstacles is rewritten further:")
            notes += [
                f"- line {site.line}: {_named(site)}, because of this: {reason_at(site.line, site.obstacle)}"
                for site in refused[:TOLD]
            ]
        return tuple(notes)


def _timed(tuned: Sequence[Tuned], parent: Candidate) -> Iterator[str]:
    """Yield lines with the simulated latencies of the fastest sequences of rewrites, so that a model plans changes
    which these sequences do not make.
    """
    latency_us = parent.evaluation.latency_us if parent.evaluation else None
    if not tuned or not latency_us:
        return
    yield "Rewrite rules alone reach the following, by simulation. They try it beside your plan:"
    for one in tuned[:SEQUENCES]:
        yield f"- {duration(one.latency_us)}, {latency_us / one.latency_us:.2f} times as fast: {'; '.join(one.steps)}"


def _expected(site: Site) -> str:
    low, high = site.gain_percent
    return f"expected to save {low:g} to {high:g} % of the latency"


def _named(site: Site) -> str:
    return site.rule.replace("_", " ")
