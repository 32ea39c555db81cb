"""Evaluate on the simulator: trace in the jail, verify and time in the judge, then run on data.

If another candidate traced to the same program before, its result is reused. So each program runs each gate
once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from acceld.config import EvaluateConfig
from acceld.evaluate.case import Failed, RecentlyUsed
from acceld.evaluate.correctness.admission import Admission
from acceld.evaluate.correctness.distributions import OWN
from acceld.evaluate.correctness.gates import RunSeeds, Seeds
from acceld.evaluate.evaluator import OrderedEvaluator, Started, opened
from acceld.evaluate.interface import EvaluationRequest, Priority
from acceld.evaluate.opinion import API, RULE, Judge, Opinion, find_judge
from acceld.evaluate.sandbox.jail import Level
from acceld.evaluate.sandbox.ladder import SandboxReport, probe_level
from acceld.evaluate.sandbox.process import Zygote
from acceld.evaluate.simulated.ahead import Ahead
from acceld.evaluate.simulated.case import Known, TracedCase
from acceld.evaluate.simulated.checking import Checker
from acceld.evaluate.simulated.children import TASKS, Children, UnusedVariant
from acceld.evaluate.simulated.early import Early
from acceld.evaluate.simulated.timer import Timer
from acceld.model import Correctness, Evaluation, Failure, Gate, Kernel, Status
from acceld.nki.timing import calibration, version
from acceld.targets import SIMULATOR
from acceld.workloads import PAPER_SEEDS, Arguments, Workload

_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class _Work:
    """The parts of an evaluator that exist only while the evaluator runs."""

    children: Children
    timer: Timer
    checker: Checker


class SimulatedEvaluator(OrderedEvaluator[TracedCase]):
    """Evaluate candidates on the simulator, in child processes."""

    backend = SIMULATOR

    def __init__(
        self,
        config: EvaluateConfig,
        state_folder: Path,
        *,
        workload_folders: Iterable[Path | str] = (),
        highest: Level = Level.L4,
        on_start: Started | None = None,
        share_data: bool = False,
        secret: bytes = b"",
        preload: bool = False,
    ) -> None:
        """Prepare the evaluator. Nothing starts before :meth:`start`.

        - ``share_data``: the strict gate draws its data sets once for each run instead of once for each
          candidate.
        - ``preload``: the front ends are loaded before the first kernel, which pays if many kernels are timed.
        - ``secret``: the seeds of a run's data sets are derived from these bytes, so that every process gets
          the same results. If it is empty, the seeds are random.
        """
        super().__init__(config, state_folder, workload_folders=workload_folders, highest=highest, on_start=on_start)
        self._share_data = share_data
        self._preload = preload
        self._seeds = RunSeeds(secret)
        self._zygote = Zygote(TASKS, level=Level.L0)
        self._work: _Work | None = None
        self._ahead: dict[tuple[int, str], Ahead] = {}
        """Work for the strict gate that is done in advance, by run and workload, until a candidate reaches that gate.
        """
        self._known: RecentlyUsed[tuple[str, str, str], Known] = RecentlyUsed(_REMEMBERED)
        self._judge: Judge | None = None
        self._opinions: RecentlyUsed[tuple[str, str, str], tuple[Opinion, ...]] = RecentlyUsed(_REMEMBERED)
        """Opinions of the second judge, by workload, chip and source."""

    async def find_level(self, highest: Level) -> SandboxReport:
        """Return the strictest sandbox level that works here, tested with the zygote that will jail the
        kernels.
        """
        return await probe_level(highest, self._zygote)

    async def open(self, report: SandboxReport) -> None:
        """Start the child processes. Raise DeviceError if a second judge is required and not installed."""
        self._judge = await asyncio.to_thread(find_judge, self._config, self._folder, report)
        children = Children(
            self._config, self._folder, report.level, report.cgroup_folder, floors=self._floors, zygote=self._zygote
        )
        timer = Timer(self._config, children, await asyncio.to_thread(calibration.read, self._folder))
        # computed before the first kernel, because computing the version reads files
        await asyncio.to_thread(version.model_version)
        checker = Checker(
            self._config,
            children,
            timer,
            self._floors,
            self.weakness,
            share_data=self._share_data,
            idle=lambda: self._queue.idle,
        )
        self._work = _Work(children, timer, checker)
        await children.start()
        if self._preload:
            await children.load()

    async def close(self) -> None:
        """End the child processes."""
        for ahead in self._ahead.values():
            await ahead.end()
        self._ahead.clear()
        judge, self._judge = self._judge, None
        if judge is not None:
            await judge.stop()
        work, self._work = self._work, None
        if work is not None:
            await work.children.stop()
        await self._zygote.stop()

    def statistics(self) -> dict[str, object]:
        """Return the figures of the queue. ``waits_for`` says why evaluations wait for room on disk; empty if no
        evaluation waits for that.
        """
        return {**super().statistics(), "waits_for": self._work.children.waits_for if self._work is not None else ""}

    def forget(self) -> None:
        """Forget the results of all programs, so that all programs are evaluated again."""
        self._known.clear()
        if self._work is not None:
            self._work.timer.forget()

    async def time(self, kernel: Kernel, arguments: Arguments, chip: str) -> Evaluation:
        """Trace, verify and time a kernel without a workload, and return the result.

        The result's status is ``unchecked``, or the status of a failure.
        """
        return await self.evaluate(
            EvaluationRequest(kernel, "", chip, gate=Gate.TIMING, priority=Priority.PERSON, arguments=arguments)
        )

    async def time_alone(self, request: EvaluationRequest, arguments: Arguments) -> Evaluation:
        """Trace, verify and time a kernel without a workload, and return the result.

        The result's status is ``unchecked``, or the status of a failure.
        """
        case = TracedCase(request, None)
        try:
            failed = await self._refuse(request.kernel) or await opened(self._work).timer.time(case, arguments)
            return self._result(case, failed or Status.UNCHECKED)
        finally:
            case.close()

    async def case(self, request: EvaluationRequest, loaded: Workload, slot: int) -> TracedCase:
        """Return the state of a new evaluation."""
        return TracedCase(request, loaded)

    async def build(self, case: TracedCase) -> Failed | None:
        """Trace the kernel, then decode, verify and time its program. Return a failure, or None.

        The data set of a baseline or of a person's kernel is made meanwhile, if a slot is free. Such a kernel
        runs on data in any case. Raise WorkloadError if a baseline fails and the reference is at fault.
        """
        request, work = case.request, opened(self._work)

        def begin() -> None:
            surely = request.priority in (Priority.PERSON, Priority.BASELINE) and request.gate is not Gate.TIMING
            if surely and not request.practice and self._queue.idle:
                seeds = self._seeds.of(request.run, case.workload)
                case.early = Early(lambda allowed: work.checker.pass_gate(case, Gate.SEARCH, seeds, allowed))

        failed = await work.timer.time(case, case.workload.kernel_arguments(), begin)
        if failed is None and case.early is not None:
            case.early.allow()
        if failed is not None and request.priority is Priority.BASELINE and request.gate is not Gate.TIMING:
            # The kernel was traced with what workload.toml declares. If get_inputs makes other arrays, the file is at fault.
            await work.children.make_ahead(case.workload, OWN, PAPER_SEEDS[0])
        return failed

    async def measure(self, case: TracedCase) -> Failed | None:
        """Return None, because :meth:`build` has already timed the program."""
        return None

    def is_enough(self, case: TracedCase) -> bool:
        """Tell whether the evaluation may end without running the kernel on data.

        Return True if only the latency was asked for, or if the kernel is too slow to enter the beam or to teach.
        """
        latency_us, useful_us = case.profile.latency_us if case.profile else None, case.request.useful_below_us
        return super().is_enough(case) or (useful_us is not None and latency_us is not None and latency_us > useful_us)

    async def check(self, case: TracedCase, gate: Gate) -> Failed | None:
        """Run one gate, unless its result for this program is known. Return a failure, or None.

        The strict gate also traces an untrusted candidate a second time, and asks the second judge.
        """
        request, loaded = case.request, case.workload
        if gate is Gate.STRICT and (ahead := self._ahead.get((request.run, loaded.hash))) is not None:
            ahead.enough()
        if (failed := await self._gate_result(case, gate)) is not None:
            return failed
        if gate is Gate.SEARCH:
            if request.priority is Priority.BASELINE and request.run:
                await self._begin_ahead(case)
            return None
        if not request.kernel.trusted and (failed := await opened(self._work).checker.read_again(case)) is not None:
            return failed
        self._noted(case)
        return await self._second_opinion(case)

    async def admission(self, loaded: Workload) -> Admission:
        """Return whether the workload's checks can distinguish right outputs from wrong ones. Raise WorkloadError if
        its reference fails.
        """
        return await self._admissions.of(loaded, opened(self._work).children.admit)

    async def _begin_ahead(self, case: TracedCase) -> None:
        """Prepare the strict gate of the run in the background, whenever a slot is free.

        Nothing more is prepared for an earlier run. Work for an earlier run, which may be paused, would take the
        processor from this run.
        """
        run, loaded, work = case.request.run, case.workload, opened(self._work)
        if (run, loaded.hash) in self._ahead:
            return
        self._ahead = {key: ahead for key, ahead in self._ahead.items() if not ahead.done}
        for ahead in self._ahead.values():
            ahead.enough()
        admit = partial(self._admissions.of, loaded, work.children.admit)
        pieces = await work.checker.pieces_ahead(loaded, self._seeds.of(run, loaded), admit)
        self._ahead[run, loaded.hash] = Ahead(pieces, lambda: self._queue.idle)

    async def _second_opinion(self, case: TracedCase) -> Failed | None:
        """Ask AWS's own tools, the second judge (:mod:`acceld.evaluate.opinion`), about a kernel that passed the strict
        gate.

        Return a failure if these tools refuse the kernel, or if an answer is required and does not come; else None.
        """
        request, loaded = case.request, case.workload
        if self._judge is None or request.kernel.api != API or request.practice:
            return None
        key = (loaded.hash, request.chip, request.kernel.sha256)
        if key not in self._opinions:
            with case.stage("second opinion"):
                children = opened(self._work).children
                async with children.data_set(loaded, OWN, PAPER_SEEDS[0]) as data:
                    if isinstance(data, UnusedVariant):
                        return None
                    self._opinions[key] = tuple(await self._judge.ask(request.kernel, loaded, request.chip, data))
        found = self._opinions[key]
        if case.profile is not None:
            details = {**case.profile.details, RULE: [one.plain() for one in found]}
            case.profile = replace(case.profile, details=details, notes=(*case.profile.notes, *(o.text for o in found)))
        for one in found:
            if one.refusal is not None:
                hint = one.refusal.hint or "change the kernel as its message says; `acceld doctor` lists such kernels"
                return Failed(Status.COMPILE_ERROR, Failure(RULE, one.text, line=one.refusal.line, hint=hint))
            if one.silence and self._config.second_opinion == "required":
                return Failed(Status.SUSPECT, Failure(RULE, one.text, hint="ask again, or set evaluate.second_opinion"))
        return None

    async def _gate_result(self, case: TracedCase, gate: Gate) -> Failed | None:
        """Return the failure of the program at a gate, or None: the known result, or that of running the gate now."""
        if case.request.practice:
            seeds = Seeds(f"practice {case.request.run}".encode())
            return await opened(self._work).checker.pass_gate(case, gate, seeds)
        if gate is Gate.SEARCH:
            case.known, case.reused = self._known.keep(case.program, Known), True
        known = case.known
        if gate in known.failed:
            return known.failed[gate]
        if gate in known.checks or (gate is Gate.SEARCH and Gate.STRICT in known.checks):
            return None
        case.reused = False
        checker, seeds = opened(self._work).checker, self._seeds.of(case.request.run, case.workload)
        early = case.early if gate is Gate.SEARCH else None
        failed = await (early.result() if early is not None else checker.pass_gate(case, gate, seeds))
        if failed is not None:
            known.failed[gate] = failed
            return failed
        known.checks[gate] = case.correctness(gate)
        if gate is Gate.STRICT:
            result = await checker.published(case)
            known.checks[gate] = replace(known.checks[gate], accelopt_passed=result)
        return None

    def _noted(self, case: TracedCase) -> None:
        """Add to the profile the note that says with which error the kernel would pass or fail on a chip, whose functions
        are less exact than the simulator's.
        """
        if case.known.on_chip and case.profile is not None and case.known.on_chip not in case.profile.notes:
            case.profile = replace(case.profile, notes=(*case.profile.notes, case.known.on_chip))

    def correctness(self, case: TracedCase) -> Correctness:
        """Return the record of the strictest gate that the program has passed. A tool's request sees only its
        own gate.
        """
        if case.request.practice:
            return case.correctness(case.request.gate)
        return case.known.checks.get(Gate.STRICT) or case.known.checks[Gate.SEARCH]

    async def release(self, case: TracedCase) -> None:
        """Free the tracer's answer, after the search gate that uses it has ended."""
        if case.early is not None:
            await case.early.end()
        case.close()
