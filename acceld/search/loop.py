"""The search: plan, write, (fix), evaluate, select, summarize, iteration after iteration.

Nothing waits for a stage to end inside an iteration: each plan's attempts start when the plan is there, each
attempt's evaluation when its code is. Selection waits for the iteration and sorts by place, so the same seed makes
the same decisions whatever finishes first. Every step looks into the store before it acts, so a run that was cut
off goes on where its rows end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from acceld.errors import BudgetError
from acceld.evaluate.interface import EvaluationRequest, Evaluator, Priority
from acceld.model import Attempt, Candidate, Evaluation, Gate, Insight, Kernel, Plan, Run, RunState, Status
from acceld.proposers.interface import AttemptRequest, FixRequest, PlanRequest, Problem, Proposer
from acceld.search.allowance import Allowance
from acceld.search.beam import beats, could_enter, first_distinct, is_selectable, is_untested, rank, select
from acceld.search.beginning import first_kernel
from acceld.search.control import RunControl
from acceld.search.endings import RunEnded, end_of, waiting_for_budget
from acceld.search.marginal import next_percent_usd
from acceld.search.resume import OpenIteration
from acceld.search.strategies import Schedule, derived_seed, schedule
from acceld.search.teaching import Teacher
from acceld.store.changes.runs import select_beam, set_best, set_run_state, spending, start_iteration
from acceld.store.changes.tree import write_attempt, write_candidate, write_evaluation, write_plan
from acceld.store.database import Store
from acceld.store.reads.records import find_evaluation, load_candidate, load_candidates, resume_state
from acceld.targets import SIMULATOR

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
"""Failures a fixer may try to repair; ``unsupported`` is ours, ``suspect`` a person's."""


@dataclass(frozen=True, slots=True)
class SearchParts:
    """What a search works with."""

    store: Store
    evaluator: Evaluator
    proposer: Proposer
    problem: Problem
    root: Kernel
    """The baseline; without text where the run begins from the reference."""
    teacher: Teacher | None = None
    context: str = ""
    """Goes into each evaluation's key: what decides a verdict besides the kernel."""
    device_usd_per_hour: float | None = None


class Search:
    """One run. ``run()`` ends with the run's final state; an exception means that the harness broke."""

    def __init__(self, run: Run, parts: SearchParts, control: RunControl | None = None) -> None:
        self.run_record = run
        self.spec = run.spec
        self.parameters = run.spec.search
        self.parts = parts
        self.control = control or RunControl()
        self.schedule: Schedule = schedule(self.parameters)
        self.iteration = 0
        self.baseline: Candidate | None = None
        self.best: Candidate | None = None
        self.beam: tuple[Candidate, ...] = ()
        self._resumed: OpenIteration | None = None
        self._history: dict[int, list[Plan]] = {}
        self._inflight: dict[str, asyncio.Future[Evaluation]] = {}
        self._without_progress = 0
        self._made = 0
        """Candidates so far, repairs included, the baseline not."""
        self._allowance = Allowance(None, 0, 0)
        self._useful_below_us: float | None = None
        self._started = time.monotonic()

    async def run(self) -> RunState:
        """Search until a stop condition holds; the store has every step."""
        store, run = self.parts.store, self.run_record
        await store.change(set_run_state, run.id, RunState.RUNNING)
        self._resumed = OpenIteration(await store.read(resume_state, run.id))
        state, message = RunState.FINISHED, ""
        try:
            await self._start()
            while self.iteration < self.schedule.iterations:
                await self._checkpoint()
                if (left_s := self._left_s()) is not None and left_s <= 0:
                    raise self._out_of_time()
                self.iteration += 1
                await self._iterate()
                await self._check_stop()
            message = f"{self.schedule.iterations} iterations done"
        except* RunEnded as ended:
            state, message = end_of(ended)
        except* BudgetError as refused:
            state, message = waiting_for_budget(refused)
        await store.change(set_run_state, run.id, state, message)
        return state

    async def _checkpoint(self) -> None:
        """Wait while paused; leave when cancelled."""
        await self.control.running.wait()
        if self.control.cancelled:
            raise RunEnded(RunState.CANCELLED, "cancelled")

    def _left_s(self) -> float | None:
        """Time until the limit; None without one."""
        limit = self.parameters.time_limit_s
        return None if limit is None else limit - (time.monotonic() - self._started)

    def _out_of_time(self) -> RunEnded:
        return RunEnded(RunState.FINISHED, f"the time limit of {self.parameters.time_limit_s:g} s was reached")

    async def _start(self) -> None:
        """Judge the baseline, or take up what an earlier daemon left."""
        resumed = self._open_iteration.state
        if self.parameters.from_reference and not (resumed.baseline and is_selectable(resumed.baseline)):
            self.baseline = await self._first()
        elif resumed.baseline is None:
            candidate = Candidate(run=self.run_record.id, iteration=0, kernel=self.parts.root, parent=None)
            self.baseline = await self.parts.store.change(write_candidate, candidate)
        else:
            self.baseline = resumed.baseline
        if self.baseline.evaluation is None:
            self.baseline = await self._evaluate(self.baseline, Gate.SEARCH, Priority.BASELINE)
        evaluation = self.baseline.evaluation
        assert evaluation is not None
        if not is_selectable(self.baseline):
            failure = evaluation.failure
            why = f": {failure.message}" if failure else ""
            raise RunEnded(RunState.FAILED, f"the baseline does not pass ({evaluation.status}){why}")
        self.best = resumed.best or self.baseline
        if resumed.best is None:
            await self.parts.store.change(set_best, self.run_record.id, self.best.id)
        self.beam = resumed.beam or (self.baseline,)
        self.iteration = resumed.finished_iterations
        if self.parameters.candidates is not None:
            earlier = await self.parts.store.read(load_candidates, self.run_record.id)
            self._made = sum(0 < one.iteration <= self.iteration for one in earlier)
        for plan in resumed.earlier_plans:
            self._history.setdefault(plan.parent, []).append(plan)

    async def _first(self) -> Candidate:
        """The first kernel, written from the reference."""

        async def judge(candidate: Candidate) -> Candidate:
            return await self._evaluate(candidate, Gate.SEARCH, Priority.BASELINE)

        parts = self.parts
        found = await first_kernel(
            self.run_record, parts.problem, parts.proposer, parts.store, parts.root, judge, FIXABLE
        )
        if found is None:
            raise RunEnded(RunState.FAILED, "no kernel written from the reference passes")
        return found

    async def _iterate(self) -> None:
        """One iteration: everything in it, then selection and teaching."""
        store, run = self.parts.store, self.run_record
        parents = self.schedule.parents(self._need(self.baseline), self.beam)
        parents = tuple(p for p in parents if p.id not in self.control.vetoed) or (self._need(self.baseline),)
        parents += tuple(await self._branches(parents))
        await store.change(start_iteration, run.id, self.iteration, [parent.id for parent in parents])
        self._allowance = self._allowed(len(parents))
        self._useful_below_us = self._useful(parents)
        insights = await self.parts.teacher.shown(self.iteration, parents) if self.parts.teacher else ()
        before = {parent.id: tuple(self._history.get(parent.id, ())) for parent in parents}
        children: list[Candidate] = []
        try:
            async with asyncio.timeout(self._left_s()), asyncio.TaskGroup() as tasks:
                for place, parent in enumerate(parents):
                    for index in range(self.schedule.plans):
                        tasks.create_task(
                            self._branch(parent, place, index, before[parent.id], insights, children),
                            name=f"r{run.id} iteration {self.iteration} parent {place} plan {index}",
                        )
        except TimeoutError:
            # What was judged in time is chosen from; only then does the run end.
            await self._checkpoint()
            await self._select(parents, sorted(children, key=lambda child: child.order))
            raise self._out_of_time() from None
        children.sort(key=lambda child: child.order)
        await self._checkpoint()
        children = await self._select(parents, children)
        if not children and self.parts.proposer.abilities.exhaustible:
            raise RunEnded(RunState.FINISHED, "the rules have nothing more to propose")
        if self.parts.teacher:
            await self.parts.teacher.learn(self.iteration, [*parents, *children], self._certify)

    def _allowed(self, parents: int) -> Allowance:
        """What each place of this iteration may make of what is left of the run's candidates."""
        limit, plan = self.parameters.candidates, self.schedule
        if limit is not None and self._made >= limit:
            raise RunEnded(RunState.FINISHED, f"{limit} candidates were judged")
        repairs = self.parameters.fixer_steps if self.parts.proposer.abilities.repairs else 0
        return Allowance(None if limit is None else limit - self._made, parents * plan.plans * plan.attempts, repairs)

    def _useful(self, parents: tuple[Candidate, ...]) -> float | None:
        """The latency above which a candidate can not enter the beam whatever else comes; None where there is none.

        What is slower is not run on data now; selection and teaching do so where they need it after all.
        """
        if self.schedule.latest or self.spec.backend != SIMULATOR:
            return None
        pins, vetoes = frozenset(self.control.pinned), frozenset(self.control.vetoed)
        pool = {c.id: c for c in (self._need(self.baseline), *parents)}
        beam = select(pool.values(), self.schedule.width, pinned=pins, vetoed=vetoes)
        return rank(beam[-1])[0] if len(beam) == self.schedule.width else None

    async def _branches(self, parents: Iterable[Candidate]) -> list[Candidate]:
        known = {parent.id for parent in parents}
        wanted = [number for number in self.control.branches if number not in known]
        self.control.branches.clear()
        found = [await self.parts.store.read(load_candidate, number) for number in wanted]
        return [candidate for candidate in found if is_selectable(candidate)]

    async def _branch(
        self,
        parent: Candidate,
        place: int,
        index: int,
        earlier: tuple[Plan, ...],
        insights: tuple[Insight, ...],
        children: list[Candidate],
    ) -> None:
        """One plan and everything that comes of it; children are appended as they are judged."""
        await self._checkpoint()
        first = (place * self.schedule.plans + index) * self.schedule.attempts
        if not self._allowance.of(first):
            return
        plan = self._open_iteration.plan(self.iteration, parent.id, index)
        if plan is None:
            proposed = await self.parts.proposer.plan(
                PlanRequest(
                    problem=self.parts.problem,
                    run=self.run_record.id,
                    iteration=self.iteration,
                    parent=parent,
                    place=place,
                    index=index,
                    seed=derived_seed(self.parameters.seed, self.iteration, place, index),
                    insights=insights,
                    hints=tuple(self.control.hints),
                    notes=self.parts.teacher.notes() if self.parts.teacher else (),
                    earlier=earlier,
                )
            )
            if proposed is None:
                return
            plan = await self.parts.store.change(write_plan, proposed)
        self._history.setdefault(parent.id, []).append(plan)
        async with asyncio.TaskGroup() as tasks:
            for attempt in range(self.schedule.attempts):
                tasks.create_task(self._attempt(parent, place, plan, attempt, children))

    async def _attempt(self, parent: Candidate, place: int, plan: Plan, index: int, children: list[Candidate]) -> None:
        """One attempt at a plan, judged and, where the proposer repairs, repaired."""
        await self._checkpoint()
        allowed = self._allowance.of((place * self.schedule.plans + plan.index) * self.schedule.attempts + index)
        if not allowed:
            return
        attempt = self._open_iteration.attempt(plan.id, index, None)
        if attempt is None:
            seed = derived_seed(self.parameters.seed, self.iteration, place, plan.index, index)
            made = await self.parts.proposer.attempt(AttemptRequest(self.parts.problem, plan, parent, index, seed))
            if made is None:
                return
            attempt = await self.parts.store.change(write_attempt, made)
        tries: list[tuple[str, Evaluation]] = []
        for step in range(self.parameters.fixer_steps + 1):
            if attempt is None or attempt.text is None:
                return
            child = await self._judge(parent, place, plan, attempt, step)
            evaluation = child.evaluation
            assert evaluation is not None
            if evaluation.status not in FIXABLE or not self.parts.proposer.abilities.repairs:
                children.append(child)
                return
            if step + 1 >= min(allowed, self.parameters.fixer_steps + 1):
                children.append(child)
                return
            tries.append((attempt.text, evaluation))
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
        fixed = self._open_iteration.attempt(plan.id, attempt.index, attempt.id)
        if fixed is not None:
            return fixed
        assert failed.evaluation is not None
        step = len(tries)
        made = await self.parts.proposer.fix(
            FixRequest(
                problem=self.parts.problem,
                plan=plan,
                parent=parent,
                failed=failed,
                evaluation=failed.evaluation,
                step=step,
                earlier=tuple(tries[:-1]),
                seed=derived_seed(self.parameters.seed, self.iteration, place, plan.index, attempt.index, step),
            )
        )
        if made is None:
            return None
        return await self.parts.store.change(write_attempt, replace(made, fix_of=attempt.id))

    async def _judge(self, parent: Candidate, place: int, plan: Plan, attempt: Attempt, step: int) -> Candidate:
        """Write the candidate (once) and evaluate it."""
        assert attempt.text is not None
        self._made += 1
        child = self._open_iteration.candidate(attempt.id)
        if child is None:
            child = await self.parts.store.change(
                write_candidate,
                Candidate(
                    run=self.run_record.id,
                    iteration=self.iteration,
                    kernel=replace(parent.kernel, text=attempt.text, trusted=self.parts.proposer.abilities.trusted),
                    parent=parent.id,
                    plan=plan.id,
                    attempt=attempt.id,
                    order=(place, plan.index, attempt.index, step),
                ),
            )
        if child.evaluation is not None:
            return child
        lazy = not self.parts.proposer.abilities.repairs and self.spec.backend == SIMULATOR
        gate = Gate.TIMING if lazy else Gate.SEARCH
        return await self._evaluate(child, gate, Priority.SEARCH, self._useful_below_us)

    async def _evaluate(
        self, candidate: Candidate, gate: Gate, priority: Priority, useful_below_us: float | None = None
    ) -> Candidate:
        """Judge a candidate at a gate; the same work is done once, also by siblings at the same moment.

        One that is slower than ``useful_below_us`` is only timed, and stored as such.
        """
        request = EvaluationRequest(
            kernel=candidate.kernel,
            workload=self.spec.workload,
            workload_folder=self.spec.workload_folder,
            chip=self.spec.chip,
            backend=self.spec.backend,
            run=self.run_record.id,
            candidate=candidate.id,
            gate=gate,
            priority=priority,
            useful_below_us=useful_below_us,
            against=await self._against(candidate),
            screen=self.parameters.screen and priority is Priority.SEARCH,
            context=self.parts.context,
        )
        if (running := self._inflight.get(request.key)) is not None:
            known: Evaluation | None = await asyncio.shield(running)
            assert known is not None
            return await self._write(candidate, replace(known, id=0, reused=True), request)
        future: asyncio.Future[Evaluation] = asyncio.get_running_loop().create_future()
        self._inflight[request.key] = future
        try:
            known = await self._known(request)
            evaluation = known or await self.parts.evaluator.evaluate(request)
            judged = evaluation if known is None else replace(known, id=0, reused=True)
            written = await self._write(candidate, judged, request)
            future.set_result(evaluation)
        finally:
            future.cancel()
            del self._inflight[request.key]
        return written

    async def _known(self, request: EvaluationRequest) -> Evaluation | None:
        """An earlier verdict on the same work, or a timing that says enough."""
        found = await self.parts.store.read(find_evaluation, request.key)
        if found is not None or request.useful_below_us is None:
            return found
        timed = await self.parts.store.read(find_evaluation, replace(request, gate=Gate.TIMING).key)
        if timed is None or timed.status is not Status.UNTESTED:
            return None
        return timed if (timed.latency_us or 0.0) > request.useful_below_us else None

    async def _against(self, candidate: Candidate) -> tuple[Kernel, ...]:
        """What a device holds a candidate against: its parent and the baseline."""
        if candidate.parent is None or self.spec.backend == "simulator":
            return ()
        parent = await self.parts.store.read(load_candidate, candidate.parent)
        return (parent.kernel, self._need(self.baseline).kernel)

    async def _write(self, candidate: Candidate, evaluation: Evaluation, request: EvaluationRequest) -> Candidate:
        if evaluation.status is Status.UNTESTED:  # not what the gate asks for, so it must not be found as that
            request = replace(request, gate=Gate.TIMING)
        return await self.parts.store.change(
            write_evaluation,
            candidate,
            evaluation,
            workload=request.workload,
            backend=self.spec.backend,
            chip=request.chip,
            key=request.key,
        )

    async def _select(self, parents: tuple[Candidate, ...], children: list[Candidate]) -> list[Candidate]:
        """Choose the next beam; try on data what could enter it, and strictly what would be best."""
        width, control = self.schedule.width, self.control
        pool = {c.id: c for c in (self._need(self.baseline), *parents, *children)}
        pins, vetoes = frozenset(control.pinned), frozenset(control.vetoed)
        while True:
            beam = select(pool.values(), width, pinned=pins, vetoed=vetoes)
            waiting = [c for c in sorted(pool.values(), key=rank) if is_untested(c) and could_enter(c, beam, width)]
            if waiting:
                async with asyncio.TaskGroup() as tasks:
                    checks = [
                        tasks.create_task(self._evaluate(c, Gate.SEARCH, Priority.SEARCH))
                        for c in first_distinct(waiting, width)
                    ]
                pool |= {c.result().id: c.result() for c in checks}
                continue
            head = beam[0]
            is_certain = head.parent is None or (head.evaluation is not None and head.evaluation.gate is Gate.STRICT)
            if not is_certain:
                head = await self._certify(head)
                pool[head.id] = head
                continue
            break
        if self.schedule.latest:
            passed = [pool[c.id] for c in children if is_selectable(pool[c.id])]
            self.beam = (passed[-1],) if passed else self.beam
        else:
            self.beam = beam
        await self._set_best(head)
        await self.parts.store.change(
            select_beam, self.run_record.id, self.iteration, [c.id for c in self.beam], self._need(self.best).id
        )
        return [pool[c.id] for c in children]

    async def _certify(self, candidate: Candidate) -> Candidate:
        """The candidate after the strict gate."""
        if candidate.evaluation is not None and candidate.evaluation.gate is Gate.STRICT:
            return candidate
        return await self._evaluate(candidate, Gate.STRICT, Priority.STRICT)

    async def _set_best(self, head: Candidate) -> None:
        best = self._need(self.best)
        if beats(head, best):
            self.best = head
            self._without_progress = 0
            await self.parts.store.change(set_best, self.run_record.id, head.id)
        else:
            self._without_progress += 1

    async def _check_stop(self) -> None:
        p, best = self.parameters, self._need(self.best)
        percent = best.evaluation.percent_of_attainable if best.evaluation else None
        if p.target_percent is not None and percent is not None and percent >= p.target_percent:
            raise RunEnded(RunState.FINISHED, f"reached {percent:.1f} % of attainable")
        if p.patience and self._without_progress >= p.patience:
            raise RunEnded(RunState.FINISHED, f"no better kernel in {p.patience} iterations")
        if p.max_usd_per_percent is not None:
            spent = await self.parts.store.read(spending, self.run_record.id)
            next_usd = next_percent_usd(spent, self.parts.device_usd_per_hour)
            if next_usd is not None and next_usd > p.max_usd_per_percent:
                told = "more than was spent so far" if next_usd == float("inf") else f"{next_usd:.2f} USD"
                raise RunEnded(RunState.FINISHED, f"the next percent would cost {told}")

    @property
    def _open_iteration(self) -> OpenIteration:
        assert self._resumed is not None, "run() reads it first"
        return self._resumed

    @staticmethod
    def _need(candidate: Candidate | None) -> Candidate:
        assert candidate is not None, "the baseline is judged before the first iteration"
        return candidate
