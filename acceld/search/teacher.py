"""Use the memory of insights in one run: show insights, let the summarizer write new ones, and count the wins and
losses of plans that cite insights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from acceld.errors import UsageError
from acceld.gains import Gain, gain_of
from acceld.model import Candidate, Gate, Held, Insight, Plan, Source, Status
from acceld.proposers.interface import NO_PLAN, Problem, Proposer, RewritePair, SummaryRequest
from acceld.search import memory
from acceld.search.effects import SAME, Effect, effect_of, similarity
from acceld.search.memory import Applicability, MemorySettings
from acceld.search.strategies import derived_seed
from acceld.store.changes.insights import change_insight, credit_plan, write_insight
from acceld.store.database import Store
from acceld.store.reads.records import known_candidates, load_insights, load_plans, summarized_pairs


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
        """Number of rewrites that confirmed an older insight in place of a new one."""

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
        known = {one.id: one for one in await self._store.read(load_insights, withdrawn=True)}
        asked = await self._store.read(summarized_pairs, self._run)
        pairs = await self._certified(self._untaught(candidates, plans, list(known.values()), asked), certify)
        first, again = await self._divided(pairs, known)
        async with asyncio.TaskGroup() as tasks:
            answers = [
                tasks.create_task(
                    self._proposer.summarize(
                        SummaryRequest(
                            self._problem, self._run, iteration, pair, derived_seed(self._seed, iteration, place, 2)
                        )
                    )
                )
                for place, pair in enumerate(first)
            ]
        taught: dict[tuple[int, int], int] = {}
        for pair, answer in zip(first, answers, strict=True):
            insight = answer.result()
            if insight is None:
                continue
            insight = self._labelled(insight, pair, iteration)
            fresh, nearest = memory.novelty(insight, known.values())
            if nearest is not None and 1.0 - fresh >= memory.TOO_ALIKE:
                taught[_key(pair)] = nearest.id
                await self._confirm(nearest.id, pair, known)
                continue
            written = await self._store.change(write_insight, replace(insight, novelty=fresh))
            known[written.id] = written
            taught[_key(pair)] = written.id
        for pair, same in again:
            number = taught.get(_key(same)) if isinstance(same, RewritePair) else same
            if number is not None:
                await self._confirm(number, pair, known)

    async def _divided(
        self, pairs: Sequence[RewritePair], known: Mapping[int, Insight]
    ) -> tuple[list[RewritePair], list[tuple[RewritePair, RewritePair | int]]]:
        """Return the pairs for the summarizer, and the pairs whose change is known already.

        A pair of the second kind comes with the insight's id, or with the earlier pair that makes the same change.
        """
        effects: list[tuple[Effect, RewritePair | int]] = []
        classes = {change for pair in pairs if (change := _change_of(pair))}
        older = [one for one in known.values() if one.change in classes and not one.withdrawn]
        numbers = {number for one in older for number in (one.slow_candidate, one.fast_candidate) if number}
        there = await self._store.read(known_candidates, sorted(numbers))
        for one in older:
            slow, fast = there.get(one.slow_candidate), there.get(one.fast_candidate)
            found = effect_of(slow, fast, one.change) if slow is not None and fast is not None else None
            if found is not None:
                effects.append((found, one.id))
        first: list[RewritePair] = []
        again: list[tuple[RewritePair, RewritePair | int]] = []
        for pair in pairs:
            mine = effect_of(pair.slow, pair.fast, _change_of(pair))
            alike = [(similarity(mine, other), what) for other, what in effects] if mine is not None else []
            best, what = max(alike, key=lambda one: one[0], default=(0.0, 0))
            if best >= SAME:
                again.append((pair, what))
                continue
            first.append(pair)
            if mine is not None:
                effects.append((mine, pair))
        return first, again

    async def _confirm(self, number: int, pair: RewritePair, known: dict[int, Insight]) -> None:
        """Count a rewrite as a confirmation of an insight. A withdrawn insight is not confirmed."""
        self.merged += 1
        insight = known[number]
        if insight.withdrawn:
            return
        held = memory.confirmed(insight, (self._held(pair, by=(_child(pair).id,)),))
        known[number] = replace(insight, held=held)
        await self._store.change(change_insight, number, "confirmed", held=held)

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
        """Return (positive pairs, negative pairs) that could teach, were never given to the summarizer and confirmed no
        insight.

        Pairs from which the summarizer drew no insight are left out too, so that no answer is paid for twice.
        """
        taught = {(insight.slow_candidate, insight.fast_candidate) for insight in known} | asked
        confirmed = {number for insight in known for place in insight.held for number in place.by}
        positive, negative = memory.rewrites(candidates, plans, self._settings)
        return (
            [pair for pair in positive if _key(pair) not in taught and _child(pair).id not in confirmed],
            [pair for pair in negative if _key(pair) not in taught and _child(pair).id not in confirmed],
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

    def _held(self, pair: RewritePair, by: tuple[int, ...] = ()) -> Held:
        """Return the place where the rewrite of a pair held."""
        profile = pair.fast.evaluation.profile if pair.fast.evaluation else None
        if profile is None:
            return Held(
                self._problem.chip, self._problem.api, self._problem.workload, Source.SIMULATED, pair.speedup, by=by
            )
        return Held(profile.chip, profile.api, self._problem.workload, profile.source, pair.speedup, by=by)

    def _labelled(self, insight: Insight, pair: RewritePair, iteration: int) -> Insight:
        """Return the insight with the two kernels that taught it, and the chip, API and other
        circumstances in which it was learned.
        """
        profile = pair.fast.evaluation.profile if pair.fast.evaluation else None
        place = self._held(pair)
        slow = pair.slow.evaluation.profile if pair.slow.evaluation else None
        return replace(
            insight,
            speedup=pair.speedup,
            kind=memory.kind_of(pair),
            run=self._run,
            iteration=iteration,
            slow_candidate=pair.slow.id,
            fast_candidate=pair.fast.id,
            chip=place.chip,
            api=place.api,
            sdk=profile.sdk if profile else self._problem.sdk,
            dtype=self._problem.dtype,
            bound=slow.bound if slow else "",
            tags=self._problem.tags,
            source=place.source,
            change=_change_of(pair),
            operations=tuple(sorted(memory.operations_of(pair.slow.kernel.text, pair.fast.kernel.text))),
            held=(place,),
            tie_percent=pair.tie_percent,
        )


def _change_of(pair: RewritePair) -> str:
    """Return the change class of the plan that led to a pair; empty if there was no plan."""
    return pair.plan.change_class if pair.plan is not None and pair.plan.title != NO_PLAN else ""


def _key(pair: RewritePair) -> tuple[int, int]:
    return pair.slow.id, pair.fast.id


def _child(pair: RewritePair) -> Candidate:
    """Return the child of a pair: the kernel that was made from the other one."""
    return pair.fast if pair.positive else pair.slow
