"""Use the memory of insights in one run: show insights, let the summarizer write new ones, and count the wins and
losses of plans that cite insights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from acceld.errors import UsageError
from acceld.gains import Gain, gain_of
from acceld.model import Candidate, Gate, Held, Insight, Plan, Source, Status
from acceld.proposers.interface import NO_PLAN, Problem, Proposer, RewritePair, SummaryRequest
from acceld.search import memory
from acceld.search.memory import Applicability, MemorySettings
from acceld.search.strategies import derived_seed
from acceld.store.changes.insights import change_insight, credit_plan, write_insight
from acceld.store.database import Store
from acceld.store.reads.records import load_insights, load_plans, summarized_pairs


async def withdraw(store: Store, candidate: int) -> list[int]:
    """Withdraw every insight that was learned from a candidate, and return the insights' ids."""
    withdrawn = memory.taught_by(candidate, await store.read(load_insights))
    for insight in withdrawn:
        await store.change(change_insight, insight.id, "withdrawn")
    return [insight.id for insight in withdrawn]


def insights_for(
    parents: Sequence[Candidate],
    known: Sequence[Insight],
    where: Applicability,
    settings: MemorySettings,
    iteration: int,
    seed: int,
) -> tuple[Insight, ...]:
    """Return the insights for the planners of an iteration.

    A title says if its insight is unverified on the run's chip, or was not tried with the run's chip and API yet.
    """
    bounds = [one.evaluation.profile.bound for one in parents if one.evaluation and one.evaluation.profile]
    operations = memory.operations_of(*(one.kernel.text for one in parents))
    where = replace(where, bounds=tuple(bounds), operations=operations)

    def marked(insight: Insight) -> Insight:
        if memory.unverified(insight, where):
            return replace(insight, title=f"{insight.title} (unverified on {where.chip} hardware)")
        if not memory.held_at(insight, where.chip, where.api):
            return replace(insight, title=f"{insight.title} (not tried on {where.chip} with {where.api} yet)")
        return insight

    return tuple(map(marked, memory.shown(known, where, settings, iteration, derived_seed(seed, iteration))))


def written_playbook(path: Path) -> tuple[str, ...]:
    """Return the lines of a person's playbook, without headings and blank lines; empty if the file does not exist.

    Raise UsageError if the file can not be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the playbook {path} can not be read: {error}", hint="mend or delete the file") from error
    lines = (line.strip() for line in text[: memory.PLAYBOOK_CHARS].splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))


def playbook_for(
    written: tuple[str, ...], known: Iterable[Insight], where: Applicability, settings: MemorySettings
) -> tuple[str, ...]:
    """Return the rules for planners: the rules that a person has ``written``, else rules summed up from the insights
    ``known``.

    Rules are summed up only for the policy ``value``, and only from trusted insights. The paper's policies show what
    this run learned.
    """
    if settings.policy == "off" or settings.own:
        return ()
    if written or settings.policy != "value":
        return written
    return memory.playbook(one for one in known if memory.trusted(one, where, settings))


class MemoryTeacher:
    """Choose the insights for planners, and let the summarizer write new ones from rewrites."""

    def __init__(
        self,
        run: int,
        problem: Problem,
        settings: MemorySettings,
        *,
        store: Store,
        proposer: Proposer,
        where: Applicability,
        seed: int = 0,
        playbook: Path | None = None,
    ) -> None:
        """Set up the teacher of one run.

        ``playbook`` is a person's file with rules for planners. Without such a file, rules are summed up from
        insights.
        """
        self._playbook = playbook
        self._run = run
        self._problem = problem
        self._settings = settings
        self._store = store
        self._proposer = proposer
        self._where = where
        self._seed = seed
        self._repeated = 0.0
        self.merged = 0
        """Number of insights that were not kept because they repeat an older insight."""

    async def shown(self, iteration: int, parents: Sequence[Candidate] = ()) -> tuple[Insight, ...]:
        """Return the insights for the planners of an iteration. Titles say which insights are unverified."""
        if self._settings.policy == "off":
            return ()
        known = await self._store.read(load_insights)
        return insights_for(parents, known, self._where, self._settings, iteration, self._seed)

    async def still_shown(self, insights: Sequence[Insight]) -> tuple[Insight, ...]:
        """Return the ``insights`` that nobody has muted, withdrawn or deleted since the iteration began."""
        if not insights:
            return ()
        left = {insight.id for insight in await self._store.read(load_insights) if not insight.muted}
        return tuple(insight for insight in insights if insight.id in left)

    async def playbook(self) -> tuple[str, ...]:
        """Return the rules for planners that :func:`playbook_for` chooses."""
        written = await asyncio.to_thread(written_playbook, self._playbook) if self._playbook is not None else ()
        return playbook_for(written, await self._store.read(load_insights), self._where, self._settings)

    def notes(self) -> tuple[str, ...]:
        """Return notes for the planner about the search so far."""
        if self._repeated < 0.25:
            return ()
        return (
            f"{self._repeated:.0%} of the last proposals repeated an earlier proposal; look elsewhere in the kernel.",
        )

    async def learn(
        self,
        iteration: int,
        candidates: Sequence[Candidate],
        certify: Callable[[Candidate], Awaitable[Candidate]],
    ) -> None:
        """Count, for each insight, the wins and losses of the iteration's plans that cite it. Then let the summarizer
        write insights from the iteration's rewrites.
        """
        plans = {plan.id: plan for plan in await self._store.read(load_plans, self._run)}
        self._repeated = memory.repeated([plan for plan in plans.values() if plan.iteration == iteration])
        await self._credit(iteration, candidates, plans)
        if self._settings.policy == "off" or not self._proposer.abilities.teaches:
            return
        known = await self._store.read(load_insights, withdrawn=True)
        asked = await self._store.read(summarized_pairs, self._run)
        pairs = await self._certified(self._untaught(candidates, plans, known, asked), certify)
        async with asyncio.TaskGroup() as tasks:
            answers = [
                tasks.create_task(
                    self._proposer.summarize(
                        SummaryRequest(
                            self._problem, self._run, iteration, pair, derived_seed(self._seed, iteration, place, 2)
                        )
                    )
                )
                for place, pair in enumerate(pairs)
            ]
        for pair, answer in zip(pairs, answers, strict=True):
            insight = answer.result()
            if insight is None:
                continue
            insight = self._labelled(insight, pair, iteration)
            fresh, nearest = memory.novelty(insight, known)
            if nearest is not None and 1.0 - fresh >= memory.TOO_ALIKE:
                self.merged += 1
                if not nearest.withdrawn:
                    held = memory.confirmed(nearest, insight)
                    known[known.index(nearest)] = replace(nearest, held=held)
                    await self._store.change(change_insight, nearest.id, "confirmed", held=held)
                continue
            known.insert(0, await self._store.change(write_insight, replace(insight, novelty=fresh)))

    async def withdraw(self, candidate: int) -> list[int]:
        """Withdraw the insights that a suspect candidate taught, and return the insights' ids."""
        return await withdraw(self._store, candidate)

    def _untaught(
        self,
        candidates: Sequence[Candidate],
        plans: dict[int, Plan],
        known: Sequence[Insight],
        asked: set[tuple[int, int]],
    ) -> tuple[list[RewritePair], list[RewritePair]]:
        """Return (positive pairs, negative pairs) that could teach and were never given to the summarizer.

        Pairs from which the summarizer drew no insight are left out too, so that no answer is paid for twice.
        """
        taught = {(insight.slow_candidate, insight.fast_candidate) for insight in known} | asked
        positive, negative = memory.rewrites(candidates, plans, self._settings)
        return (
            [pair for pair in positive if (pair.slow.id, pair.fast.id) not in taught],
            [pair for pair in negative if (pair.slow.id, pair.fast.id) not in taught],
        )

    async def _certified(
        self,
        offered: tuple[list[RewritePair], list[RewritePair]],
        certify: Callable[[Candidate], Awaitable[Candidate]],
    ) -> list[RewritePair]:
        """Return the pairs of which both kernels pass the strict gate, at most as many pairs as the quota allows."""
        strict: dict[int, Candidate] = {}

        async def passes(candidate: Candidate) -> bool:
            if candidate.id not in strict:
                strict[candidate.id] = await certify(candidate)
            evaluation = strict[candidate.id].evaluation
            return evaluation is not None and evaluation.status is Status.PASSED and evaluation.gate is Gate.STRICT

        guesses = 0

        async def first(pairs: list[RewritePair], count: int) -> list[RewritePair]:
            nonlocal guesses
            found: list[RewritePair] = []
            for pair in pairs:
                if len(found) == count or (pair.tie_percent is not None and guesses == memory.HYPOTHESES):
                    break
                if await passes(pair.slow) and await passes(pair.fast):
                    found.append(replace(pair, slow=strict[pair.slow.id], fast=strict[pair.fast.id]))
                    guesses += pair.tie_percent is not None
            return found

        positive, negative = offered
        taken = await first(positive, memory.quota(self._settings.top_k, len(positive))[0])
        return [*taken, *await first(negative, self._settings.top_k - len(taken))]

    async def _credit(self, iteration: int, candidates: Sequence[Candidate], plans: dict[int, Plan]) -> None:
        by_id = {candidate.id: candidate for candidate in candidates}
        best: dict[int, Gain | None] = {}
        for child in candidates:
            plan = plans.get(child.plan) if child.plan is not None else None
            parent = by_id.get(child.parent) if child.parent is not None else None
            if plan is None or plan.iteration != iteration or parent is None:
                continue
            known = best.setdefault(plan.id, None)
            found = gain_of(child, parent)
            if found is not None and (known is None or found.ratio > known.ratio):
                best[plan.id] = found
        for plan_id, found in best.items():
            cited = tuple(plans[plan_id].data.get("cited", ()))
            if plans[plan_id].insights and cited:
                faster, ratio = (found.faster, found.ratio) if found else (False, None)
                await self._store.change(credit_plan, plan_id, faster, ratio, cited)

    def _labelled(self, insight: Insight, pair: RewritePair, iteration: int) -> Insight:
        """Return the insight with the two kernels that taught it, and the chip, API and other
        circumstances in which it was learned.
        """
        evaluation = pair.fast.evaluation
        profile = evaluation.profile if evaluation else None
        slow = pair.slow.evaluation.profile if pair.slow.evaluation else None
        chip, api = (profile.chip, profile.api) if profile else (self._problem.chip, self._problem.api)
        source = profile.source if profile else Source.SIMULATED
        return replace(
            insight,
            speedup=pair.speedup,
            kind=memory.kind_of(pair),
            run=self._run,
            iteration=iteration,
            slow_candidate=pair.slow.id,
            fast_candidate=pair.fast.id,
            chip=chip,
            api=api,
            sdk=profile.sdk if profile else self._problem.sdk,
            dtype=self._problem.dtype,
            bound=slow.bound if slow else "",
            tags=self._problem.tags,
            source=source,
            change=pair.plan.change_class if pair.plan is not None and pair.plan.title != NO_PLAN else "",
            operations=tuple(sorted(memory.operations_of(pair.slow.kernel.text, pair.fast.kernel.text))),
            held=(Held(chip, api, self._problem.workload, source, pair.speedup),),
            tie_percent=pair.tie_percent,
        )
