"""Propose rewrites by rules, without a model. A plan is a place in a kernel where a rule applies. The attempts at the
plan are the variants of the rule's rewrite.
"""

from __future__ import annotations

import ast
import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial, reduce
from operator import and_
from time import monotonic
from typing import Any

from acceld import plugins
from acceld.errors import RuleRefused
from acceld.events import Tuning
from acceld.model import PROPOSERS, READING, WRITING_OUT, Attempt, Candidate, Kernel, Plan, Profile
from acceld.nki.source.bodies import bodies
from acceld.nki.source.branches import decided
from acceld.nki.source.launches import Launch, launch_of
from acceld.nki.source.normal import as_before, normalized, with_former_names
from acceld.nki.source.reading import KernelModule, kernel_module
from acceld.nki.source.spans import parsed
from acceld.nki.source.syntax import Statement, flatten
from acceld.proposers.interface import AttemptRequest, PlanRequest, Problem, Proposer
from acceld.proposers.rules import all_rules, rule_named
from acceld.proposers.rules.records import Parsed, Place, Rule, Site, Variant, rewrite_name
from acceld.proposers.rules.tuner import (
    Again,
    Move,
    TimedProgram,
    Tuned,
    Tuner,
    anywhere,
    repeated,
    tune,
    without_idle_steps,
)
from acceld.targets import ALL_DEVICES

_NOT_UNDERSTOOD = (
    "rules do not understand this statement, and found no place in the others: use plain loops, tiles and calls. A search "
    "writes such a kernel of nki out from its trace, if the workload has one shape and the kernel no run-time index"
)
_REMEMBERED = 64
_TOLD_S = 2.0
"""Least number of seconds between two reports of how far a tuner is."""
_TOLD_SHARE = 0.05
"""Least growth of the time between two reports, so that long tunings do not fill the history."""
_MOST_PLACES = 24
"""Greatest number of places at which a single move applies a rule."""
_MOST_EVERYWHERE = 0.4
"""Greatest benefit that a move at several places states."""


def suggestions(source: str, launch: Launch, profile: Profile | None = None) -> list[Site]:
    """Return every place in a kernel where a rule applies, the most promising first. Raise RuleRefused if the source
    can not be read.
    """
    return _findings(source, launch, profile)[0]


def refusals(source: str, launch: Launch) -> list[Site]:
    """Return the places in a kernel that match a rule's pattern but at which the rule refuses, each with its
    ``obstacle``.
    """
    return _findings(source, launch, None)[1]


def rewrite(source: str, launch: Launch, site: Site, variant: Variant) -> str:
    """Return the kernel's source after the rewrite ``variant`` at ``site``. Raise RuleRefused with the reason if the
    rule refuses.
    """
    groups = functions(source, launch)
    kernels = next((group for group in groups[1:] if _is_in(site, group[0])), groups[0])
    for number, kernel in enumerate(kernels):
        try:
            made = rule_named(site.rule).apply(kernel, site, variant)
            return as_before(source, _with_assertions(made, kernel) if number else made)
        except RuleRefused as error:
            refusal = error
    raise refusal


def _is_in(site: Site, kernel: Parsed) -> bool:
    """Tell whether a site lies in the function that was read as the kernel."""
    function = getattr(kernel, "function", None)
    return function is not None and function.lineno <= site.line <= function.end_lineno


def _findings(source: str, launch: Launch, profile: Profile | None) -> tuple[list[Site], list[Site]]:
    """Return (places where the rules of an API apply; places where rules refuse), each with the most promising first."""
    groups = functions(source, launch)
    rules = [rule for rule in all_rules() if launch.api in rule.apis]
    found = [(rule, one) for rule in rules for kernels in groups for one in places(rule, kernels, profile)]
    words = _words_of(source, launch.api)
    found = [(rule, replace(one, site=words(one.site))) for rule, one in found]
    ranked = [(-rule.promise(one.site, profile), one.site) for rule, one in found if one.rewrite is not None]
    ranked.sort(key=lambda one: (one[0], one[1].rule, one[1].line, one[1].key))
    refused = [(rule.promise(one.site, profile), one.site) for rule, one in found if one.rewrite is None]
    refused.sort(key=lambda one: -one[0])
    if not ranked and not refused and (line := _first_unread(source, launch)):
        return [], [_unread(_NOT_UNDERSTOOD, line)]
    return [site for _, site in ranked], [site for _, site in refused]


def _words_of(source: str, api: str) -> Callable[[Site], Site]:
    """Return a function that translates the words of a place to the names of ``source``. Rules find places in the
    kernel's normal form, which has other names.
    """
    if any(api in device.readers for device in ALL_DEVICES):
        return lambda site: site  # such sources have no normal form
    words = partial(with_former_names, source, normalized(source))
    return lambda site: replace(
        site, precondition=words(site.precondition), plan=words(site.plan), obstacle=words(site.obstacle)
    )


def places(rule: Rule, kernels: Sequence[Parsed], profile: Profile | None) -> Iterator[Place]:
    """Yield the places that a rule finds in a kernel. ``kernels`` are the readings of the kernel (see
    :func:`readings`).

    For each place, the first reading in which the rule applies there is used. If the rule refuses the place in all
    readings, the refusal in the last reading is yielded.
    """
    *earlier, last = kernels
    found = (one for kernel in earlier for one in rule.find(kernel, profile) if one.rewrite is not None)
    better = {(one.site.line, one.site.key): one for one in found}
    for one in rule.find(last, profile):
        # in the last of several readings an assertion of its condition replaces each ``if`` statement
        kept = _kept_assertions(one, last) if earlier else one
        yield better.get((one.site.line, one.site.key), kept)


def _kept_assertions(one: Place, kernel: Parsed) -> Place:
    """Return a place whose rewrite keeps the assertions of the kernel: it raises RuleRefused if the new source lacks
    one of them.
    """
    make = one.rewrite
    return one if make is None else replace(one, rewrite=lambda variant: _with_assertions(make(variant), kernel))


def _with_assertions(changed: str, kernel: Parsed) -> str:
    """Return ``changed``, a rewrite of ``kernel``, if it has all assertions of the kernel. Raise RuleRefused if it
    lacks one, because the assertions say for which arguments the kernel is right.
    """
    if _assertions(kernel.source) - _assertions(changed):
        raise RuleRefused("the change would drop a condition on the arguments: write the kernel for one branch")
    return changed


def _assertions(source: str) -> Counter[str]:
    return Counter(line for each in source.splitlines() if (line := each.strip()).startswith("assert "))


def _untaken(sites: Sequence[Site], request: PlanRequest) -> list[Site]:
    """Return the places that no earlier plan of the request took."""
    taken = {(plan.rule, plan.line, str(plan.data.get("key", ""))) for plan in request.earlier}
    return [one for one in sites if (one.rule, one.line, one.key) not in taken]


def moves(source: str, launch: Launch, profile: Profile | None = None, *, only: str = "") -> list[Move]:
    """Return every single rewrite of a kernel as a move, the most promising first; [] if the source can not be read.

    A ``profile`` of the kernel improves the order of the moves, because it says more about what a move saves. ``only``
    names the one rule whose moves are wanted; "" means all rules.
    """
    rules = [rule for rule in all_rules() if launch.api in rule.apis and only in ("", rule.name)]
    try:
        groups = functions(source, launch)
        found = [(rule, one) for rule in rules for kernels in groups for one in places(rule, kernels, profile)]
    except RuleRefused:
        return []
    listed = _moves_at(found, source, launch, profile)
    return sorted(listed, key=lambda move: (-move.benefit, move.step))


def _moves_at(found: Sequence[tuple[Rule, Place]], source: str, launch: Launch, profile: Profile | None) -> list[Move]:
    """Return the moves of all variants at the places ``found`` in ``source``.

    If a rule may apply at all its places at once, the result also has a move that does so.
    """
    listed, promises = list[Move](), defaultdict[Rule, list[float]](list)
    for rule, finding in found:
        if finding.rewrite is not None:
            site, promise = finding.site, rule.promise(finding.site, profile)
            promises[rule].append(promise)
            for variant in site.variants:
                step = rewrite_name(site.rule, variant.name, site.line, site.key)
                listed.append(Move(step, site.rule, promise, partial(_moved, finding.rewrite, variant)))
    for rule, each in promises.items():
        if rule.everywhere and len(each) > 1:
            make = partial(_everywhere, rule, source, launch)
            listed.append(Move(f"{rule.name} everywhere", rule.name, min(sum(each), _MOST_EVERYWHERE), make))
    return listed


def _everywhere(rule: Rule, source: str, launch: Launch) -> str | None:
    """Return the kernel after a rule has changed every place that it finds, each by its first variant; None if the
    rule changes nothing.
    """
    text = source
    for _ in range(_MOST_PLACES):
        made = (
            _moved(one.rewrite, one.site.variants[0])
            for kernels in functions(text, launch)
            for one in places(rule, kernels, None)
            if one.rewrite is not None
        )
        changed = next((one for one in made if one not in (None, text)), None)
        if changed is None:
            break
        text = changed
    return text if text != source else None


def _moved(make: Callable[[Variant], str], variant: Variant) -> str | None:
    try:
        return make(variant)
    except RuleRefused:
        return None


@lru_cache(maxsize=64)
def readings(source: str, launch: Launch) -> tuple[Parsed, ...]:
    """Return the readings of a kernel for the rules of its API: the kernel as its author wrote it and, if that differs,
    the kernel with its ``if`` statements decided.

    A rewrite of the first reading keeps the ``if`` statements, so the kernel still serves every value of their
    conditions. Rules find more places in the second reading. Raise RuleRefused if the source can not be parsed.
    """
    for device in ALL_DEVICES:
        if launch.api in device.readers:
            return (plugins.named(device.readers[launch.api])(source, launch.api, launch.shapes),)
    whole = kernel_module(normalized(source), launch)
    one_way = decided(whole)
    return (whole,) if one_way is whole else (whole, one_way)


_DEEPEST = 3
"""Greatest number of functions in a chain, each of which calls the next, that rules read."""


@lru_cache(maxsize=64)
def functions(source: str, launch: Launch) -> tuple[tuple[Parsed, ...], ...]:
    """Return the readings of the kernel, and behind them those of each function of its file that does a part of its work.

    Raise RuleRefused if the source can not be parsed.
    """
    groups = [readings(source, launch)]
    new = groups
    for _ in range(_DEEPEST):
        called = [one for group in new if isinstance(group[0], KernelModule) for one in bodies(group[0])]
        new = [readings(source, one) for one in called]
        groups = [*groups, *new]
    return tuple(groups)


class RulesProposer(Proposer):
    """Fill the roles of planner and executor with rules. The same parent always gets the same plans."""

    name = "rules"
    abilities = PROPOSERS[name]

    def __init__(self, *, order_seed: int | None = None) -> None:
        """Prepare the proposer. With ``order_seed`` the places come in a random order drawn from this seed; without,
        the most promising first.
        """
        self._order_seed = order_seed
        self._reading = asyncio.Lock()
        self._is_over: Callable[[], bool] = lambda: False
        self._found: dict[tuple[str, str, float | None], tuple[list[Site], list[Site]]] = {}

    def end_when(self, is_over: Callable[[], bool]) -> None:
        """End the tuning of a parent, without a result, as soon as ``is_over`` returns True."""
        self._is_over = is_over

    async def plan(self, request: PlanRequest) -> Plan | None:
        """Return the plan for place number ``request.index`` among the places that no earlier plan took; None if there
        is no such place.

        The most promising places come first, and places at which a rule refuses last. An attempt at a refused place
        has no code, only the reason. If :meth:`crossed` returns a plan, that plan is returned instead.
        """
        crossed = await self.crossed(request)
        if crossed is not None:
            return crossed
        applicable, refused = await self.findings(request.parent, request.problem)
        open_sites = _untaken([*applicable, *refused], request)
        if request.index >= len(open_sites):
            return None
        if self._order_seed is not None:
            random.Random(f"{self._order_seed} {request.iteration} {request.place}").shuffle(open_sites)
        site = open_sites[request.index]
        return self._planned(request, site)

    def _planned(self, request: PlanRequest, site: Site) -> Plan:
        """Return the plan for a place. An attempt at a refused place has no code, only the reason."""
        if site.rule == READING:
            return request.planned(site.plan, title=f"{READING} the source", rule=READING, data=_data(site))
        rule = rule_named(site.rule)
        safe = "" if site.obstacle else f"\nSafe because {site.precondition}."
        return request.planned(
            f"{site.plan}\nWhy: {rule.reason} ({rule.source}){safe}",
            title=f"{site.rule.replace('_', ' ')}, line {site.line}",
            change_class=rule.change_class,
            rule=site.rule,
            line=site.line,
            data=_data(site),
        )

    async def crossed(self, request: PlanRequest) -> Plan | None:
        """Return a plan that repeats the partner's rewrites on the parent, where they apply.

        Return None if there is no partner, if a model made one of the partner's steps, if no step applies, if an
        earlier plan is the same, or if the new kernel is not worth a plan.
        """
        partner = request.partner
        if partner is None or not all(step.rewrites for step in partner.steps):
            return None
        wanted = [name for step in partner.steps for name in step.rewrites]
        kernel = request.parent.kernel
        find = found_again(_moves_of(kernel, request.problem))
        async with self._reading:
            text, made = await asyncio.to_thread(repeated, kernel.text, wanted, find)
        names = [move.step for move in made]
        if not made or any(plan.data.get("steps") == names for plan in request.earlier):
            return None
        if not await self._is_worth_a_plan(request, replace(kernel, text=text)):
            return None
        return _sequence(
            request,
            names,
            [move.rule for move in made],
            f"Rewrites of another kernel of the beam, c{partner.candidate.id}, that apply here too, in this order",
            title="crossover, ",
            partner=request.partner_id,
        )

    async def _is_worth_a_plan(self, request: PlanRequest, crossed: Kernel) -> bool:
        """Return True if a crossover may be faster than its parent. This class times nothing, so the result is always
        True.
        """
        return True

    async def findings(self, parent: Candidate, problem: Problem) -> tuple[list[Site], list[Site]]:
        """Return (places where rules apply to a kernel, the most promising first; places where rules refuse).

        If the kernel can not be read, there is a single refusal, which says why.
        """
        kernel = parent.kernel
        profile = parent.evaluation.profile if parent.evaluation else None
        key = (kernel.api, kernel.text, profile.latency_us if profile else None)
        async with self._reading:
            if key not in self._found:
                if len(self._found) >= _REMEMBERED:
                    self._found.clear()
                try:
                    launch = _launched(kernel, problem)
                    self._found[key] = await asyncio.to_thread(_findings, kernel.text, launch, profile)
                except RuleRefused as refusal:
                    self._found[key] = ([], [_unread(refusal.message)])
            return self._found[key]

    async def tuned(self, parent: Candidate, problem: Problem) -> list[Tuned]:
        """Return timed sequences of rewrites, fastest first. This class times nothing, so it returns []."""
        return []

    async def written_out(self, kernel: Kernel) -> str:
        """Return the kernel written out from its trace. Raise RuleRefused with the reason if it has no plain form.

        This class traces nothing, so it always raises.
        """
        raise RuleRefused("kernels are written out only where rewrites are timed by simulation")

    async def attempt(self, request: AttemptRequest) -> Attempt | None:
        """Return an attempt with the parent's kernel after variant number ``request.index`` of the plan's rewrite; None
        after the last variant. A plan of several rewrites has one attempt, which makes all of them.
        """
        if "steps" in request.plan.data:
            return await self._sequence_applied(request)
        site = _site(request.plan)
        if request.index >= len(site.variants):
            return None
        if site.rule == READING:
            return Attempt(request.plan.id, request.index, None, site.precondition)
        kernel, variant = request.parent.kernel, site.variants[request.index]
        try:
            text = await asyncio.to_thread(rewrite, kernel.text, _launched(kernel, request.problem), site, variant)
        except RuleRefused as refusal:
            return Attempt(request.plan.id, request.index, None, refusal.message)
        return Attempt(request.plan.id, request.index, text)

    async def _sequence_applied(self, request: AttemptRequest) -> Attempt | None:
        """Return an attempt with the kernel after all rewrites of the plan, in order; None if the plan already had this
        attempt. The attempt has no code if one of the rewrites does not apply any more.
        """
        if request.index > 0:
            return None
        kernel, steps = request.parent.kernel, request.plan.data["steps"]
        if steps[0] == WRITING_OUT:
            try:
                kernel, steps = replace(kernel, text=await self.written_out(kernel)), steps[1:]
            except RuleRefused as refusal:
                return Attempt(request.plan.id, 0, None, f"the kernel is not written out: {refusal.message}")
        text: str | None = kernel.text
        find = _moves_of(kernel, request.problem)
        for step in steps:
            found = await asyncio.to_thread(find, text or "")
            move = next((one for one in found if one.step == step), None)
            text = await asyncio.to_thread(move.apply) if move is not None else None
            if text is None:
                return Attempt(request.plan.id, 0, None, f"{step} does not apply any more")
        return Attempt(request.plan.id, 0, as_before(kernel.text, text or ""))


class TunedRules(RulesProposer):
    """Propose the fastest sequences of rewrites that a tuner found by simulated latency. Each plan has one attempt."""

    def __init__(
        self,
        time: Callable[[Kernel], Awaitable[TimedProgram | None]],
        *,
        limit: int,
        most: int | None = None,
        within_s: float | None = None,
        tell: Callable[[Tuning], Awaitable[object]] | None = None,
        write_out: Callable[[Kernel], Awaitable[str]] | None = None,
        now: Callable[[], float] = monotonic,
    ) -> None:
        """Prepare the proposer. For each parent the tuner times at most ``limit`` kernels.

        ``time`` returns a kernel's simulated latency. A parent gets at most ``most`` plans, all in one iteration; None
        means no limit. ``within_s`` is the time in seconds that the run has left. Tuning one parent takes at most half
        of the time left, so that the results can still be evaluated. ``tell`` gets the events that report how far the
        tuner is. ``write_out`` returns a kernel written out from its trace, or raises RuleRefused.
        """
        super().__init__()
        self._time, self._limit, self._most = time, limit, most
        self._tell, self._write_out, self._now = tell, write_out, now
        self._ends = None if within_s is None else now() + within_s
        self._tuned: dict[tuple[str, str], list[Tuned]] = {}
        self._unwritten: dict[str, str] = {}
        """The reasons why kernels were not written out, by text."""

    async def plan(self, request: PlanRequest) -> Plan | None:
        """Return the plan for sequence number ``request.index`` among the sequences that no earlier plan took, fastest
        first; None if nothing is left.

        Sequences that are too slow for the beam are left out. Two kinds of sequences come last, because they are probably
        wrong too: those with every step that all wrong sequences have in common, and those with all steps of one wrong
        sequence.

        If a parent may get any number of plans, the places at which a rule refuses come behind the sequences. So the
        history has the reasons.
        """
        crossed = await self.crossed(request)
        if crossed is not None:
            return crossed
        sequences = [plan for plan in request.earlier if "steps" in plan.data and plan.partner is None]
        taken = {tuple(plan.data["steps"]) for plan in sequences}
        if self._most is not None and len(taken) + request.index >= self._most:
            return None
        below_us = float("inf") if request.below_us is None else request.below_us
        tuned = await self.tuned(request.parent, request.problem)
        found = [one for one in tuned if one.steps not in taken and one.latency_us < below_us]
        wrong = [_anywhere(plan.data["steps"]) for plan in sequences if plan.id in request.wrong]
        found.sort(key=lambda one: _is_suspect(_anywhere(one.steps), wrong))
        if request.index >= len(found):
            if self._most is not None:
                return None
            _, refused = await self.findings(request.parent, request.problem)
            untaken = _untaken(refused, request)[request.index - len(found) :]
            return self._planned(request, untaken[0]) if untaken else None
        one = found[request.index]
        return _sequence(
            request,
            one.steps,
            one.rules,
            f"Rewrites in this order, tuned by simulated latency ({one.latency_us:.4g} µs)",
        )

    async def tuned(self, parent: Candidate, problem: Problem) -> list[Tuned]:
        """Return the sequences of rewrites that make a kernel faster, without idle steps, fastest first."""
        kernel = parent.kernel
        async with self._reading:
            if (kernel.api, kernel.text) not in self._tuned:
                told = _Told(parent.id, self._limit, self._tell, self._now)
                await told.report()
                self._tuned[kernel.api, kernel.text] = await self._tune(kernel, problem, told)
                await told.report(ended=True)
        return self._tuned[kernel.api, kernel.text]

    async def _is_worth_a_plan(self, request: PlanRequest, crossed: Kernel) -> bool:
        """Return True if the crossover is faster than its parent, and fast enough for the beam."""
        timed = await self._time(crossed)
        parent_us = request.parent.evaluation.latency_us if request.parent.evaluation else None
        limits_us = [one for one in (request.below_us, parent_us) if one is not None]
        return timed is not None and all(timed.latency_us < limit_us for limit_us in limits_us)

    async def _tune(self, kernel: Kernel, problem: Problem, told: _Told) -> list[Tuned]:
        async def clock(text: str) -> TimedProgram | None:
            timed = await self._time(replace(kernel, text=text))
            await told.count()
            return timed

        find = _moves_of(kernel, problem)
        over = self._over()
        tuner = Tuner(clock, find, limit=self._limit, is_over=over, again=found_again(find))
        root, first = await self._root(tuner, kernel, problem)
        if root is None:
            return []
        await tune(tuner, root)
        if self._is_over():
            return []
        await tuner.free(root)
        faster = [one for one in tuner.fastest() if one.latency_us < root.latency_us]
        return [
            replace(one, steps=first + one.steps, rules=first + one.rules, parent=None, tie=None, moves=None, made={})
            for one in without_idle_steps(faster)
        ]

    async def written_out(self, kernel: Kernel) -> str:
        """Return the kernel written out from its trace. Raise RuleRefused with the reason if it has no plain form."""
        return await (super().written_out(kernel) if self._write_out is None else self._write_out(kernel))

    async def _root(self, tuner: Tuner, kernel: Kernel, problem: Problem) -> tuple[Tuned | None, tuple[str, ...]]:
        """Return the kernel with which the tuning begins, and the steps that lead to it from ``kernel``. The kernel is None
        if it can not be timed.

        If rules do not understand all of its source, that is the kernel written out from its trace, provided that rules
        find more moves in it, and that it is legal at all shapes of the workload. For a kernel with functions of its own, all
        of which rules understand, these moves must be of more rules, too.
        """
        launch = _launched(kernel, problem)
        unread = await asyncio.to_thread(_first_unread, kernel.text, launch) if kernel.api == "nki" else 0
        if unread or (kernel.api == "nki" and _has_functions(kernel.text)):
            try:
                plain = await self.written_out(kernel)
                own, more = [await asyncio.to_thread(moves, text, launch) for text in (kernel.text, plain)]
                if len(more) <= len(own) or not (unread or {one.rule for one in more} - {one.rule for one in own}):
                    raise RuleRefused("rules find as much in your source")
                root = await tuner.root(plain)
                if root is None:
                    raise RuleRefused("it would fit one shape, and the workload has others too")
            except RuleRefused as refusal:
                self._unwritten[kernel.text] = refusal.message
            else:
                return root, (WRITING_OUT,)
        return await tuner.root(kernel.text), ()

    async def findings(self, parent: Candidate, problem: Problem) -> tuple[list[Site], list[Site]]:
        """Return what :meth:`RulesProposer.findings` returns. The refusal of a kernel that can not be read also says why the
        kernel was not written out.
        """
        places, refused = await super().findings(parent, problem)
        why = self._unwritten.get(parent.kernel.text, "")
        if why and refused and refused[0].rule == READING:
            refused = [replace(refused[0], obstacle=f"{refused[0].obstacle}. It was not written out: {why}")]
        return places, refused

    def _over(self) -> Callable[[], bool]:
        """Return a function that tells whether the tuning has to stop, because half of the run's remaining time has
        passed since this call, or because the run is over.
        """
        ends = float("inf") if self._ends is None else (self._now() + self._ends) / 2
        return lambda: self._now() >= ends or self._is_over()


class _Told:
    """Count the kernels that a tuner has timed for one parent, and report the count at intervals."""

    def __init__(
        self,
        parent: int,
        limit: int,
        tell: Callable[[Tuning], Awaitable[object]] | None,
        now: Callable[[], float],
    ) -> None:
        self._parent, self._limit, self._tell, self._now = parent, limit, tell, now
        self._began = self._told = now()
        self._timed = -1  # the parent's own kernel is timed first, and is not counted

    async def count(self) -> None:
        """Count one more kernel, and report the number if the last report is old."""
        self._timed += 1
        if self._now() - self._told >= max(_TOLD_S, (self._told - self._began) * _TOLD_SHARE):
            await self.report()

    async def report(self, *, ended: bool = False) -> None:
        """Report how many kernels were timed so far. ``ended`` says that no more will be timed."""
        self._told, timed = self._now(), max(0, self._timed)
        if self._tell is not None:
            elapsed_s = round(self._told - self._began, 3)
            await self._tell(Tuning(self._parent, timed, max(self._limit, timed), elapsed_s, ended))


def _first_unread(source: str, launch: Launch) -> int:
    """Return the line of the first statement of a kernel that rules do not understand; 0 if they understand all statements,
    1 if they can not read the source at all.

    Rules understand the call of a function that they read like a kernel, if they understand the function's statements.
    """
    try:
        kernels = [group[-1] for group in functions(source, launch) if isinstance(group[-1], KernelModule)]
    except RuleRefused:
        return 1
    known = {kernel.function.name for kernel in kernels[1:]}
    unread = [one for kernel in kernels for one in flatten(kernel.items) if one.kind == "other"]
    return next((one.line for one in unread if _called(one) not in known), 0)


def _called(statement: Statement) -> str:
    """Return the name of the function of the kernel's file that a statement calls; "" if it calls none."""
    call = getattr(statement.node, "value", None)
    return call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""


def _has_functions(source: str) -> bool:
    """Tell whether a kernel's file has other functions beside the kernel."""
    return sum(isinstance(one, ast.FunctionDef) for one in parsed(source).body) > 1


def _moves_of(kernel: Kernel, problem: Problem) -> Callable[..., list[Move]]:
    """Return a function that takes a changed source of ``kernel`` and returns the moves that apply to it, as
    :func:`moves` does.
    """
    launch = _launched(kernel, problem)
    return lambda text, profile=None, only="": moves(text, launch, profile, only=only)


def found_again(find: Callable[..., list[Move]]) -> Again:
    """Return a function that takes a kernel and the name of a step, and returns the moves on this kernel by the rule
    that made the step.
    """
    return lambda text, step: find(text, only=step.partition(" ")[0])


def _sequence(
    request: PlanRequest,
    steps: Sequence[str],
    rules: Sequence[str],
    introduction: str,
    *,
    title: str = "",
    partner: int | None = None,
) -> Plan:
    """Return the plan for a sequence of rewrites. ``rules`` names the rule of each step, in the order of the steps."""
    listed = "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))
    count = "one rewrite" if len(steps) == 1 else f"{len(steps)} rewrites"
    return request.planned(
        f"{introduction}:\n{listed}",
        title=f"{title}{count}: {', '.join(_counted(rules))}".replace("_", " "),
        change_class=rule_named(rules[-1]).change_class if len(set(rules)) == 1 else "mixed",
        rule="+".join(dict.fromkeys(rules)),
        data={"steps": list(steps)},
        partner=partner,
    )


def _counted(rules: Sequence[str]) -> Iterator[str]:
    """Yield each rule once, with the number of its rewrites if there are several: ``place_engine x2``."""
    for rule, count in Counter(rules).items():
        yield rule if count == 1 else f"{rule} x{count}"


def _anywhere(steps: Sequence[str]) -> Counter[str]:
    """Return how often each name occurs among ``steps``. Names are counted without their lines, because the same step
    stands at another line after other steps.
    """
    return Counter(map(anywhere, steps))


def _is_suspect(steps: Counter[str], wrong: Sequence[Counter[str]]) -> bool:
    """Return True if a sequence has every step that all sequences in ``wrong`` have in common, or all steps of one of
    these sequences.
    """
    if not wrong:
        return False
    shared = reduce(and_, wrong)
    return bool(shared and shared <= steps) or any(one <= steps for one in wrong)


def _launched(kernel: Kernel, problem: Problem) -> Launch:
    """Return the launch of ``kernel`` with the arguments of ``problem``."""
    shapes = tuple(one.value if isinstance(one.value, int) else one.shape for one in problem.arguments)
    return launch_of(kernel, shapes, tuple(one.dtype for one in problem.arguments))


def _unread(reason: str, line: int = 0) -> Site:
    """Return the refusal of a kernel whose source rules can not read, because of its ``line`` if that is not 0."""
    plan = "Read the kernel's source, to find the places of rewrite rules."
    return Site(READING, line, "", plan, (Variant("all"),), obstacle=reason)


def _data(site: Site) -> dict[str, Any]:
    return {
        "key": site.key,
        "precondition": site.precondition or site.obstacle,
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
