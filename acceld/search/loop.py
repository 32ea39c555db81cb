"""Run the search, iteration after iteration: plan, write, fix if needed, evaluate, select, summarize.

Inside an iteration no stage waits until the whole previous stage has ended. A plan's attempts start when the plan is
written, an attempt's evaluation when its code is written. Selection waits for the whole iteration, and its order does
not depend on which result came first, so the same seed makes the same decisions. Every step looks into the store before
it acts, so that an interrupted run continues where its rows end.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

from acceld import figures
from acceld.errors import BudgetError
from acceld.evaluate.interface import Evaluator, Priority, slots_reported
from acceld.llm.errors import LLMError
from acceld.model import (
    ADMISSION,
    UNKNOWN_BASIS,
    Attempt,
    Basis,
    Candidate,
    Evaluation,
    Gate,
    Insight,
    Kernel,
    Plan,
    Run,
    RunState,
    Status,
)
from acceld.proposers.interface import (
    AppliedPlan,
    AttemptRequest,
    FirstRequest,
    FixRequest,
    Partner,
    PlanRequest,
    Problem,
    Proposer,
)
from acceld.search.beam import (
    beats,
    challenger,
    could_enter,
    fastest_beam,
    first_distinct,
    is_selectable,
    is_untested,
    latency_us,
    parents_of,
    rank,
    select,
)
from acceld.search.control import RunControl, RunEnded, end_of, unanswered
from acceld.search.evaluations import CandidateEvaluations, basis_of
from acceld.search.forecast import next_percent_usd
from acceld.search.lineage import lineage, nearby, outcomes, partner_of
from acceld.search.strategies import Allowance, derived_seed, strategy
from acceld.search.teacher import MemoryTeacher
from acceld.store.changes.runs import (
    select_beam,
    set_basis,
    set_best,
    set_run_state,
    spending,
    start_iteration,
    write_again,
    write_notice,
)
from acceld.store.changes.tree import write_attempt, write_candidate, write_plan
from acceld.store.database import Store
from acceld.store.reads.records import ResumeState, load_candidate, load_candidates, load_plans, resume_state
from acceld.targets import SIMULATOR

T = TypeVar("T")

CODELESS: Final = 6
"""Number of answers in a row without a kernel after which a run pauses. Each of these answers was asked for twice."""

LATE_S: Final = 5.0
"""Seconds beyond its time limit from which a run says how long it took."""

FIXABLE = frozenset(
    {
        Status.COMPILE_ERROR,
        Status.RUNTIME_ERROR,
        Status.INCORRECT_SHAPE,
        Status.INCORRECT_DTYPE,
        Status.INCORRECT_NUMERICAL,
        Status.REJECTED,
        Status.TIMEOUT,
    }
)
"""Statuses of failures that a fixer may try to repair. ``unsupported`` is left out because it is the simulator's fault,
and ``suspect`` because a person decides about it.
"""

CROSSOVER = 1
"""Index of the plan, among the plans for a parent, that is a crossover if the parent has a second parent (partner)."""


@dataclass(frozen=True, slots=True)
class SearchParts:
    """The parts that a search uses: store, evaluator, proposer, memory, and the facts on which results depend."""

    store: Store
    evaluator: Evaluator
    proposer: Proposer
    problem: Problem
    root: Kernel
    """The baseline; its text is empty if the run begins from the reference."""
    teacher: MemoryTeacher | None = None
    context: str = ""
    """Part of each evaluation's key: everything, apart from the kernel, on which a result depends."""
    basis: Basis = UNKNOWN_BASIS
    """The basis (SDK, driver, performance model ...) on which latencies are compared at present."""
    device_usd_per_hour: float | None = None
    device_cap_usd: float | None = None
    """Cap in USD on the time of the device; needs the hourly price."""
    polisher: Proposer | None = None
    """Proposer by rules that improves models' kernels that pass."""
    ahead: int = 64
    """Limit on attempts without a result, in addition to the evaluator's slots.

    Without a limit, models would be paid for kernels long before these can be evaluated.
    """


@dataclass(frozen=True, slots=True)
class Past:
    """The past of one parent, as a planner is told of it: earlier plans, the steps that led to the parent, and the
    partner for a crossover.

    ``wrong`` has the ids of the run's plans whose kernels computed outputs beyond the tolerance.
    """

    plans: tuple[Plan, ...]
    wrong: frozenset[int] = frozenset()
    outcomes: Mapping[int, str] = field(default_factory=dict)
    lineage: tuple[AppliedPlan, ...] = ()
    nearby: tuple[Plan, ...] = ()
    partner: Partner | None = None


class Search:
    """The search of one run. ``run()`` returns the run's final state; an exception means a fault of acceld."""

    def __init__(self, run: Run, parts: SearchParts, control: RunControl | None = None) -> None:
        self.run_record = run
        self.spec = run.spec
        self.parameters = run.spec.search
        self.parts = parts
        self.control = control or RunControl()
        self.strategy = strategy(self.parameters)
        self.iteration = 0
        self.baseline: Candidate | None = None
        self.best: Candidate | None = None
        self.beam: tuple[Candidate, ...] = ()
        self._evaluations = CandidateEvaluations(run, parts.store, parts.evaluator, parts.context, parts.basis)
        self._plans: dict[tuple[int, int, int], Plan] = {}
        self._attempts: dict[tuple[int, int, int | None], Attempt] = {}
        self._candidates: dict[int | None, Candidate] = {}
        """Candidates of the open iteration that an earlier daemon wrote, by their attempt."""
        self._history: dict[int, list[Plan]] = {}
        self._without_progress = 0
        self._made = 0
        """Number of candidates so far: repairs count, the baseline does not."""
        self._codeless: Counter[str] = Counter()
        """Number of attempts without code since this daemon took the run, by reason."""
        self._codeless_in_a_row = 0
        self._failure: LLMError | None = None
        """The newest failed call of the open iteration."""
        self._carried_out = 0
        """Number of attempts made at plans of the open iteration, with or without code."""
        self._stopped: RunEnded | None = None
        """The reason why models are not asked any more; None while models are asked. Running work is finished first."""
        self._allowance = Allowance(None, 0, 0)
        self._parents: tuple[Candidate, ...] = ()
        """Parents of the open iteration."""
        self._unfinished = asyncio.Semaphore(parts.ahead)
        """Places for attempts without a result."""
        self._started = time.monotonic()
        self._device_s_before = 0.0
        """Seconds on devices before this daemon took the run."""

    async def run(self) -> RunState:
        """Search until a stop condition holds, and return the run's final state. Every step is stored."""
        store, run = self.parts.store, self.run_record
        await store.change(set_run_state, run.id, RunState.RUNNING)
        self._device_s_before = sum(one.evaluation_s for one in await store.read(spending, run.id))
        end = RunEnded(RunState.FINISHED, f"{figures.many(self.strategy.iterations, 'iteration')} done")
        try:
            await self._settle_basis()
            await self._start(await store.read(resume_state, run.id))
            while self.iteration < self.strategy.iterations:
                await self.control.checkpoint()
                if (left_s := self._left_s()) is not None and left_s <= 0:
                    raise self._out_of_time()
                self.iteration += 1
                await self._iterate()
                await self.control.checkpoint()
                await self._check_stop()
            if self.parts.proposer.abilities.uses_models and not self._made and not await self._has_children():
                raise RunEnded(RunState.FAILED, self._no_kernel())
        except* RunEnded as ended:
            end = end_of(ended)
        except* (BudgetError, LLMError) as refused:
            end = end_of(refused)
        # No await comes between this line and the change of the state, so every later action of a person is refused.
        self.control.ended = True
        unread = ", ".join(self.control.unread)
        await store.change(set_run_state, run.id, end.state, end.message, end.exit_code)
        if unread and end.state is not RunState.CANCELLED:
            text = f"r{run.id} ended before a decision could take into account: {unread}"
            await store.change(write_notice, run.id, "warning", text)
        return end.state

    async def _has_children(self) -> bool:
        """Return True if the run has a candidate that was made from another one, by this daemon or an earlier one."""
        candidates = await self.parts.store.read(load_candidates, self.run_record.id)
        return any(one.parent is not None for one in candidates)

    def _no_kernel(self) -> str:
        """Return the message for a run in which no answer had a kernel. The message names the most frequent reason that
        this daemon has seen.
        """
        if not self._codeless:
            return "no answer held a kernel, and all iterations are done: start a new run"
        (reason, count), *_ = self._codeless.most_common(1)
        return f"none of {self._codeless.total()} answers held a kernel; {count} times: {reason}"

    async def _asked(self, ask: Callable[[], Awaitable[T | None]]) -> T | None:
        """Return the result of ``ask``, a function that calls the proposer.

        Return None if the call failed, or if the run asks no model any more because its models fail permanently.
        """
        if self._stopped is not None:
            return None
        try:
            return await ask()
        except LLMError as error:
            self._failure = error
            if error.lasting and self._stopped is None:
                self._stopped = unanswered(str(error), error)
            return None

    def _check_answers(self) -> None:
        """Pause the run if its models fail permanently, or if calls failed in this iteration and no plan led to a kernel.

        The iteration is not closed, so a resumed run asks the models again.
        """
        if self._stopped is not None:
            raise self._stopped
        if self._failure is not None and not self._carried_out:
            raise unanswered(
                f"iteration {self.iteration} got no kernel, as calls failed: {self._failure}", self._failure
            )

    def _count_code(self, attempt: Attempt) -> None:
        """Count one answer of a model to a plan. After ``CODELESS`` answers in a row without a kernel, no model is
        asked any more.
        """
        if attempt.text is not None or not self.parts.proposer.abilities.uses_models:
            self._codeless_in_a_row = 0
            return
        self._codeless_in_a_row += 1
        if self._codeless_in_a_row >= CODELESS and self._stopped is None:
            why = (attempt.reason or "no code").splitlines()[0]
            self._stopped = unanswered(
                f"none of the last {self._codeless_in_a_row} answers held a kernel, and each was asked for twice; the "
                f"newest: {why}"
            )

    def _left_s(self) -> float | None:
        """Return the seconds until the run's earliest time limit; None if the run has no time limit."""
        limits = self._limits_s()
        return min(limits.values()) if limits else None

    def _limits_s(self) -> dict[str, float]:
        """Return the seconds left until each time limit. The keys are the messages that report the limits."""
        limit, took_s = self.parameters.time_limit_s, time.monotonic() - self._started
        limits = {} if limit is None else {f"the time limit of {limit:g} s was reached": limit - took_s}
        cap, price = self.parts.device_cap_usd, self.parts.device_usd_per_hour
        if cap is not None and price:
            spent_s = self._device_s_before + took_s
            limits[f"the cap of {cap:.2f} USD on the device's time is used up"] = 3600.0 * cap / price - spent_s
        return limits

    def _out_of_time(self) -> RunEnded:
        """Return the end of a run at its time limit. The message says by how much the run took longer."""
        why, left_s = min(self._limits_s().items(), key=lambda limit: limit[1])
        late = f"; what was under way took {-left_s:.0f} s more" if left_s <= -LATE_S else ""
        return RunEnded(RunState.FINISHED, f"{why}{late}")

    async def _settle_basis(self) -> None:
        """Make the latencies that an earlier daemon stored comparable with new latencies, if their basis (see
        docs/architecture.md) has changed.

        On a device the run ends instead.
        """
        store, run, now = self.parts.store, self.run_record, self.parts.basis
        known = await store.read(load_candidates, run.id, None, True)
        timed = [one for one in known if one.evaluation is not None and one.evaluation.latency_us]
        timed.sort(key=lambda one: (one.id != run.baseline, one.id))
        if not timed:
            await store.change(set_basis, run.id, now)
        elif self.spec.backend != SIMULATOR:
            await self._keep_basis(timed[0])
        elif changes := run.basis.changes(now):
            await self._time_again(timed, changes)

    async def _keep_basis(self, baseline: Candidate) -> None:
        """Measure the baseline again on a device. Raise RunEnded if the basis of the new measurement differs from the
        basis of the stored latencies.
        """
        now = self._evaluations.basis = await self._evaluations.measured_basis(baseline)
        if changes := self.run_record.basis.changes(now):
            raise RunEnded(
                RunState.FINISHED,
                f"{changes} changed meanwhile, and earlier latencies do not compare with new ones: start a new run",
            )

    async def _time_again(self, timed: Sequence[Candidate], changes: str) -> None:
        """Evaluate the kernels of an earlier daemon again, and choose the best again. ``changes`` names what changed.

        All new results are written in one transaction, so that no table ever mixes latencies of two bases.
        """
        store, run = self.parts.store, self.run_record
        told = f"timing {len(timed)} kernels again, because of a change of {changes}"
        await store.change(set_run_state, run.id, RunState.RUNNING, told)
        async with asyncio.TaskGroup() as tasks:
            again = [tasks.create_task(self._evaluations.again(one)) for one in timed]
        await self.control.checkpoint()
        done = [replace(one, evaluation=found.result()[0]) for one, found in zip(timed, again, strict=True)]
        passed = [one for one in done if is_selectable(one)]
        root = next((one for one in passed if one.id == run.baseline), None)
        strict = [one for one in passed if one.evaluation and one.evaluation.gate is Gate.STRICT and one is not root]
        best = next((one for one in sorted(strict, key=rank) if beats(one, root)), root) if root else None
        keys = [found.result()[1] for found in again]
        led = best.id if best else None
        await store.change(write_again, run.id, self.parts.basis, changes, list(zip(done, keys, strict=True)), led)
        await store.change(set_run_state, run.id, RunState.RUNNING)

    async def _start(self, resumed: ResumeState) -> None:
        """Evaluate the baseline. If the run was resumed, load the state that an earlier daemon stored."""
        self._plans = {(plan.iteration, plan.parent, plan.index): plan for plan in resumed.plans}
        self._attempts = {(one.plan, one.index, one.fix_of): one for one in resumed.attempts}
        self._candidates = {one.attempt: one for one in resumed.candidates}
        written: Candidate | None = None
        if self.parameters.from_reference and not resumed.beam:
            lowered = await self._lowered()
            written = await self._first(needed=lowered is None)
            self.baseline = lowered or written
        elif resumed.baseline is None:
            candidate = Candidate(run=self.run_record.id, iteration=0, kernel=self.parts.root, parent=None)
            self.baseline = await self.parts.store.change(write_candidate, candidate)
        else:
            self.baseline = resumed.baseline
        assert self.baseline is not None
        if self.baseline.evaluation is None:
            self.baseline = await self._evaluations.evaluate(self.baseline, Gate.SEARCH, Priority.BASELINE)
        self._evaluations.baseline = self.baseline
        evaluation = self.baseline.evaluation
        assert evaluation is not None
        basis = basis_of(self._evaluations.basis, evaluation.profile)
        if basis != self._evaluations.basis:
            self._evaluations.basis = basis
            await self.parts.store.change(set_basis, self.run_record.id, basis)
        if not is_selectable(self.baseline):
            failure = evaluation.failure
            why = f": {failure.message}" if failure else ""
            no_latency = "has no latency, because it depends on values that the kernel reads"
            passed = evaluation.status is Status.PASSED
            wrong = no_latency if passed else f"does not pass ({evaluation.status}){why}"
            raise RunEnded(RunState.FAILED, f"the baseline {wrong}")
        roots = tuple(sorted({one.id: one for one in (self.baseline, written or self.baseline)}.values(), key=rank))
        self.best = resumed.best or roots[0]
        if resumed.best is None:
            await self.parts.store.change(set_best, self.run_record.id, self.best.id)
        self.beam = tuple(filter(is_selectable, resumed.beam)) or roots[: self.strategy.width]
        self._parents = resumed.parents
        self.iteration = resumed.finished_iterations
        if self.parameters.candidates is not None:
            earlier = await self.parts.store.read(load_candidates, self.run_record.id)
            self._made = sum(0 < one.iteration <= self.iteration for one in earlier)
        for plan in resumed.earlier_plans:
            self._history.setdefault(plan.parent, []).append(plan)

    async def _lowered(self) -> Candidate | None:
        """Return the candidate whose kernel was lowered from the reference, without a model; None if that kernel does
        not pass, or if no kernel was lowered.
        """
        if not self.parts.root.text:
            return None
        order = (0, -1, 0, 0)  # the lowered kernel comes before the kernels that models write from the reference
        earlier = await self.parts.store.read(load_candidates, self.run_record.id)
        found = next((one for one in earlier if one.parent is None and one.order == order), None)
        if found is None:
            made = Candidate(self.run_record.id, 0, self.parts.root, None, order=order)
            found = await self.parts.store.change(write_candidate, made)
        if found.evaluation is None:
            found = await self._evaluations.evaluate(found, Gate.SEARCH, Priority.BASELINE)
        return found if is_selectable(found) else None

    async def _first(self, *, needed: bool) -> Candidate | None:
        """Return the first kernel that a model writes from the reference and that passes.

        Kernels are asked for one after another, each with its repairs, until one passes. If no kernel passes, return
        None; raise RunEnded if a kernel is ``needed`` because the run has no other baseline.
        """
        parts, run, parameters = self.parts, self.run_record, self.parameters
        blank = replace(parts.root, text="", trusted=False, closure={})
        earlier = await parts.store.read(load_candidates, run.id)
        known = {one.order: one for one in earlier if one.parent is None}
        for attempt in range(parameters.plans):
            tries: list[tuple[str, Evaluation]] = []
            for step in range(parameters.fixer_steps + 1):
                candidate = known.get((0, 0, attempt, step))
                await self.control.checkpoint()
                if candidate is None:
                    seed = derived_seed(parameters.seed, 0, attempt, step)
                    request = FirstRequest(parts.problem, run.id, blank, attempt, step, seed, tuple(tries))
                    text = await self._asked(partial(parts.proposer.first, request))
                    if text is None:
                        break
                    made = Candidate(run.id, 0, replace(blank, text=text), None, order=(0, 0, attempt, step))
                    candidate = await parts.store.change(write_candidate, made)
                if candidate.evaluation is None:
                    candidate = await self._evaluations.evaluate(candidate, Gate.SEARCH, Priority.BASELINE)
                evaluation = candidate.evaluation
                assert evaluation is not None
                if evaluation.status is Status.PASSED:
                    return candidate
                if evaluation.status not in FIXABLE:
                    break
                tries.append((candidate.kernel.text, evaluation))
        self._check_answers()
        if needed:
            raise RunEnded(RunState.FAILED, "no kernel written from the reference passes")
        return None

    async def _iterate(self) -> None:
        """Run one iteration: plans, attempts and evaluations, then selection and teaching."""
        run = self.run_record
        self._parents = parents = self._parents or await self._start_iteration()
        self._allowance = self._allowed(len(parents))
        self._unfinished = asyncio.Semaphore(self.parts.ahead + slots_reported(self.parts.evaluator))
        insights = await self.parts.teacher.shown(self.iteration, parents) if self.parts.teacher else ()
        before = await self._pasts(parents)
        self._failure, self._carried_out = None, 0
        children: list[Candidate] = []
        try:
            async with asyncio.timeout(self._left_s()), asyncio.TaskGroup() as tasks:
                for place, parent in enumerate(parents):
                    for index in range(self.strategy.plans):
                        tasks.create_task(
                            self._branch(parent, place, index, before[parent.id], insights, children),
                            name=f"r{run.id} iteration {self.iteration} parent {place} plan {index}",
                        )
        except TimeoutError:
            # candidates that were evaluated in time are still selected before the run ends
            await self.control.checkpoint()
            await self._select(parents, sorted(children, key=lambda child: child.order))
            raise self._out_of_time() from None
        children.sort(key=lambda child: child.order)
        await self.control.checkpoint()
        self._check_answers()
        children = await self._select(parents, children)
        self._parents = ()
        await self.control.checkpoint()
        failures = [one.evaluation.failure for one in children if one.evaluation]
        if weak := next((failure for failure in failures if failure and failure.rule == ADMISSION), None):
            # no candidate of this workload can be proven faster, so that more of them would cost time for nothing
            raise RunEnded(RunState.FINISHED, weak.message)
        if not children and self.parts.proposer.abilities.exhaustible:
            raise RunEnded(RunState.FINISHED, "the rules have nothing more to propose")
        if self.parts.teacher:
            await self.parts.teacher.learn(self.iteration, [*parents, *children], self._evaluations.certify)

    async def _pasts(self, parents: Sequence[Candidate]) -> dict[int, Past]:
        """Return, as a dict by parent, the past that a planner is told. Rewrite rules read only the plans and the
        partner of a past.
        """
        history = {parent.id: tuple(self._history.get(parent.id, ())) for parent in parents}
        crosses = len(parents) > 1 and self.strategy.plans > CROSSOVER
        uses_models = self.parts.proposer.abilities.uses_models and self.iteration > 1
        if not (crosses or uses_models or any(history.values())):
            return {parent: Past(plans) for parent, plans in history.items()}
        run = self.run_record.id
        known = {candidate.id: candidate for candidate in await self.parts.store.read(load_candidates, run)}
        wrong = frozenset(one.plan for one in known.values() if one.plan is not None and _is_wrong(one))
        plans = {plan.id: plan for plan in await self.parts.store.read(load_plans, run)}

        def past(parent: Candidate) -> Past:
            earlier = history[parent.id]
            crossed = {plan.partner for plan in earlier if plan.partner is not None}
            partner = partner_of(parent, parents, plans, known, crossed) if crosses else None
            if not uses_models:
                return Past(earlier, wrong, partner=partner)
            before = nearby(parent, plans, known)
            results = outcomes((*earlier, *before), known)
            return Past(earlier, wrong, results, lineage(parent, plans, known), before, partner)

        return {parent.id: past(parent) for parent in parents}

    def _allowed(self, parents: int) -> Allowance:
        """Share the run's remaining candidates among the plans and attempts of this iteration."""
        limit, plan = self.parameters.candidates, self.strategy
        if limit is not None and self._made >= limit:
            raise RunEnded(RunState.FINISHED, f"{limit} candidates were evaluated")
        more = self.parameters.fixer_steps if self.parts.proposer.abilities.repairs else 0
        # Each attempt keeps one candidate for its polished kernel, before another attempt may begin: a polished kernel is
        # evaluated only if it was timed faster than the best kernel, so it is worth more than a new attempt.
        kept = int(self.parts.polisher is not None)
        room = None if limit is None else limit - self._made
        return Allowance(room, parents * plan.plans * plan.attempts, more + kept, kept)

    def _turn(self, parent: int, plan: int, attempt: int = 0) -> int:
        """Return the position of an attempt in the order in which the remaining candidates are given out. The first
        plans of all parents come first.
        """
        return (plan * len(self._parents) + parent) * self.strategy.attempts + attempt

    @property
    def _useful_below_us(self) -> float | None:
        """Return the latency in microseconds above which a candidate can no longer enter the beam; None if every
        latency can.
        """
        if not self.strategy.keeps_fastest or self.spec.backend != SIMULATOR:
            return None
        pins, vetoes = frozenset(self.control.pinned), frozenset(self.control.vetoed)
        pool = {c.id: c for c in (self._need(self.baseline), *self._parents)}
        beam = select(pool.values(), self.strategy.width, pinned=pins, vetoed=vetoes)
        return latency_us(beam[-1]) if len(beam) == self.strategy.width else None

    async def _start_iteration(self) -> tuple[Candidate, ...]:
        """Choose and store the parents of the next iteration."""
        control, baseline = self.control, self._need(self.baseline)
        loaded: dict[int, Candidate] = {}
        while missing := [number for number in control.branches if number not in loaded]:
            loaded |= {number: await self.parts.store.read(load_candidate, number) for number in missing}
        chosen = self.strategy.parents(baseline, self.beam)
        parents = parents_of(chosen, baseline, [loaded[number] for number in control.branches], control.vetoed)
        control.branches.clear()
        control.read("branch", "unveto", "veto")
        await self.parts.store.change(
            start_iteration, self.run_record.id, self.iteration, [parent.id for parent in parents]
        )
        return parents

    async def _branch(
        self,
        parent: Candidate,
        place: int,
        index: int,
        past: Past,
        insights: tuple[Insight, ...],
        children: list[Candidate],
    ) -> None:
        """Make plan number ``index`` for a parent, its attempts and their evaluations. Append each evaluated candidate
        to ``children``. ``place`` is the place of the parent in the beam.
        """
        await self.control.checkpoint()
        if not self._allowance.of(self._turn(place, index)):
            return
        plan = self._plans.get((self.iteration, parent.id, index))
        if plan is None:
            insights = await self.parts.teacher.still_shown(insights) if self.parts.teacher else ()
            self.control.read("hint")
            request = PlanRequest(
                problem=self.parts.problem,
                run=self.run_record.id,
                iteration=self.iteration,
                parent=parent,
                place=place,
                index=index,
                seed=derived_seed(self.parameters.seed, self.iteration, place, index),
                insights=insights,
                playbook=await self.parts.teacher.playbook() if self.parts.teacher else (),
                hints=tuple(self.control.hints),
                notes=self.parts.teacher.notes() if self.parts.teacher else (),
                earlier=past.plans,
                nearby=past.nearby,
                wrong=past.wrong,
                outcomes=past.outcomes,
                lineage=past.lineage,
                below_us=self._useful_below_us,
                partner=past.partner if index == CROSSOVER else None,
            )
            proposed = await self._asked(partial(self.parts.proposer.plan, request))
            if proposed is None:
                return
            plan = await self.parts.store.change(write_plan, proposed)
        self._history.setdefault(parent.id, []).append(plan)
        async with asyncio.TaskGroup() as tasks:
            for attempt in range(self.strategy.attempts):
                tasks.create_task(self._in_turn(parent, place, plan, attempt, children))

    async def _in_turn(self, parent: Candidate, place: int, plan: Plan, index: int, children: list[Candidate]) -> None:
        """Make attempt number ``index`` at a plan, once the number of attempts without a result is below its limit."""
        async with self._unfinished:
            await self._attempt(parent, place, plan, index, children)

    async def _attempt(self, parent: Candidate, place: int, plan: Plan, index: int, children: list[Candidate]) -> None:
        """Make attempt number ``index`` at a plan, evaluate it, and repair it if the proposer can repair."""
        await self.control.checkpoint()
        allowed = self._allowance.of(self._turn(place, plan.index, index))
        if not allowed:
            return
        attempt = self._attempts.get((plan.id, index, None))
        if attempt is None:
            seed = derived_seed(self.parameters.seed, self.iteration, place, plan.index, index)
            partner = None if plan.partner is None else await self.parts.store.read(load_candidate, plan.partner)
            request = AttemptRequest(self.parts.problem, plan, parent, index, seed, partner)
            made = await self._asked(partial(self.parts.proposer.attempt, request))
            if made is None:
                return
            attempt = await self.parts.store.change(write_attempt, made)
            if not plan.rule:
                self._count_code(attempt)
        self._carried_out += 1
        tries: list[tuple[str, Evaluation]] = []
        for step in range(self.parameters.fixer_steps + 1):
            if attempt is None or attempt.text is None:
                if attempt is not None:
                    self._codeless[(attempt.reason or "no code").splitlines()[0]] += 1
                return
            child = await self._evaluate(parent, plan, attempt, (place, plan.index, index, step))
            evaluation = child.evaluation
            assert evaluation is not None
            if evaluation.status not in FIXABLE or plan.rule or not self.parts.proposer.abilities.repairs:
                children.append(child)
                if evaluation.status is Status.PASSED and not plan.rule and step + 1 < allowed:
                    await self._polish(child, children)
                return
            if step + 1 >= min(allowed, self.parameters.fixer_steps + 1):
                children.append(child)
                return
            tries.append((attempt.text, evaluation))
            await self.control.checkpoint()
            attempt = await self._fix(parent, place, plan, attempt, child, tries)

    async def _fix(
        self,
        parent: Candidate,
        place: int,
        plan: Plan,
        attempt: Attempt,
        failed: Candidate,
        tries: list[tuple[str, Evaluation]],
    ) -> Attempt | None:
        fixed = self._attempts.get((plan.id, attempt.index, attempt.id))
        if fixed is not None:
            return fixed
        assert failed.evaluation is not None
        step = len(tries)
        request = FixRequest(
            problem=self.parts.problem,
            plan=plan,
            parent=parent,
            failed=failed,
            evaluation=failed.evaluation,
            step=step,
            earlier=tuple(tries[:-1]),
            seed=derived_seed(self.parameters.seed, self.iteration, place, plan.index, attempt.index, step),
        )
        made = await self._asked(partial(self.parts.proposer.fix, request))
        if made is None:
            return None
        return await self.parts.store.change(write_attempt, replace(made, fix_of=attempt.id))

    async def _polish(self, model: Candidate, children: list[Candidate]) -> None:
        """Let rules improve a model's kernel that passed, and evaluate the results as children of that kernel."""
        polisher, store = self.parts.polisher, self.parts.store
        if polisher is None:
            return
        await self.control.checkpoint()
        place, index, number, step = model.order
        plan = self._plans.get((self.iteration, model.id, 0))
        if plan is None:
            seed = derived_seed(self.parameters.seed, self.iteration, place, index, number, step)
            run = self.run_record.id
            below_us = min(one for one in (self._useful_below_us, latency_us(self._need(self.best))) if one is not None)
            asked = PlanRequest(self.parts.problem, run, self.iteration, model, place, 0, seed, below_us=below_us)
            proposed = await polisher.plan(asked)
            if proposed is None:
                return
            plan = await store.change(write_plan, proposed)
        self._history.setdefault(model.id, []).append(plan)
        attempt = self._attempts.get((plan.id, 0, None))
        if attempt is None:
            made = await polisher.attempt(AttemptRequest(self.parts.problem, plan, model, 0, 0))
            if made is None:
                return
            attempt = await store.change(write_attempt, made)
        if attempt.text is not None:
            children.append(await self._evaluate(model, plan, attempt, (place, index, number, step + 1)))

    async def _evaluate(
        self, parent: Candidate, plan: Plan, attempt: Attempt, order: tuple[int, int, int, int]
    ) -> Candidate:
        """Store an attempt's candidate if it is not stored yet, evaluate it, and return the evaluated candidate.

        A kernel that a rule wrote is trusted if its parent's kernel is trusted.
        """
        assert attempt.text is not None
        self._made += 1
        child = self._candidates.get(attempt.id)
        if child is None:
            child = await self.parts.store.change(
                write_candidate,
                Candidate(
                    run=self.run_record.id,
                    iteration=self.iteration,
                    kernel=replace(parent.kernel, text=attempt.text, trusted=bool(plan.rule) and parent.kernel.trusted),
                    parent=parent.id,
                    plan=plan.id,
                    attempt=attempt.id,
                    order=order,
                ),
            )
        if child.evaluation is not None:
            return child
        is_final = bool(plan.rule) or not self.parts.proposer.abilities.repairs
        lazy = is_final and self.spec.backend == SIMULATOR
        gate = Gate.TIMING if lazy else Gate.SEARCH
        return await self._evaluations.evaluate(child, gate, Priority.SEARCH, self._useful_below_us)

    async def _select(self, parents: tuple[Candidate, ...], children: list[Candidate]) -> list[Candidate]:
        """Choose the next beam, and return the children with their latest results.

        Candidates that could enter the beam are run on data, and a new best candidate must pass the strict gate.
        People may pin or veto candidates meanwhile, so the beam is chosen again after each wait, and every action
        before the beam is stored counts. A pause stops the next evaluation. It does not stop a decision that needs no
        evaluation.
        """
        try:
            return await self._selected(parents, children)
        finally:
            self.control.settled.set()

    async def _selected(self, parents: tuple[Candidate, ...], children: list[Candidate]) -> list[Candidate]:
        """Choose the next beam as :meth:`_select` does. If a strict gate ran, leave ``control.settled`` clear."""
        width, control, baseline = self.strategy.width, self.control, self._need(self.baseline)
        pool = {c.id: c for c in (baseline, *parents, *children)}
        while True:
            if missing := [number for number in control.pinned if number not in pool]:
                pool |= {number: await self.parts.store.read(load_candidate, number) for number in missing}
                continue
            pins, vetoes = frozenset(control.pinned), frozenset(control.vetoed)
            beam = fastest_beam(pool, width, baseline, pins, vetoes)
            waiting = [
                c
                for c in sorted(pool.values(), key=rank)
                if is_untested(c) and c.id not in vetoes and (c.id in pins or could_enter(c, beam, width))
            ]
            head = challenger(beam, self._need(self.best))
            is_decided = not waiting and (head is None or _is_certain(head))
            if not (is_decided or control.running.is_set()):
                control.settled.set()
                await control.running.wait()
                continue
            if waiting:
                async with asyncio.TaskGroup() as tasks:
                    checks = [
                        tasks.create_task(self._evaluations.evaluate(c, Gate.SEARCH, Priority.SEARCH))
                        for c in first_distinct(waiting, width)
                    ]
                pool |= {c.result().id: c.result() for c in checks}
                continue
            if head is None or is_decided:
                break
            control.settled.clear()
            pool[head.id] = await self._evaluations.certify(head)
        passed = [pool[c.id] for c in children if is_selectable(pool[c.id]) and c.id not in vetoes]
        self.beam = self.strategy.next_beam(self.beam, beam, passed)
        self._without_progress += 1
        if head is not None and beats(head, self._need(self.best)):
            self.best, self._without_progress = head, 0
        control.read("pin", "unpin", "veto", "unveto")
        await self.parts.store.change(
            select_beam, self.run_record.id, self.iteration, [c.id for c in self.beam], self._need(self.best).id
        )
        return [pool[c.id] for c in children]

    async def _check_stop(self) -> None:
        p, best = self.parameters, self._need(self.best)
        percent = best.evaluation.percent_of_attainable if best.evaluation else None
        if p.target_percent is not None and percent is not None and percent >= p.target_percent:
            raise RunEnded(RunState.FINISHED, f"reached {percent:.1f} % of attainable")
        if p.patience and self._without_progress >= p.patience:
            raise RunEnded(RunState.FINISHED, f"no further gain in {p.patience} iterations")
        if p.max_usd_per_percent is not None:
            spent = await self.parts.store.read(spending, self.run_record.id)
            next_usd = next_percent_usd(spent, self.parts.device_usd_per_hour)
            if next_usd is not None and next_usd > p.max_usd_per_percent:
                reported = "more than was spent so far" if next_usd == float("inf") else f"{next_usd:.2f} USD"
                raise RunEnded(RunState.FINISHED, f"the next percent of speed-up would cost {reported}")

    @staticmethod
    def _need(candidate: Candidate | None) -> Candidate:
        assert candidate is not None, "the baseline is evaluated before the first iteration"
        return candidate


def _is_certain(candidate: Candidate) -> bool:
    """Return True if the candidate is a baseline, or passed the strict gate."""
    return candidate.parent is None or (candidate.evaluation is not None and candidate.evaluation.gate is Gate.STRICT)


def _is_wrong(candidate: Candidate) -> bool:
    """Return True if a gate found the candidate's outputs beyond the tolerance."""
    return candidate.evaluation is not None and candidate.evaluation.status is Status.INCORRECT_NUMERICAL
