"""The evaluator on the simulator: takes a candidate through the order of judging, cheap checks first.

policy -> trace (jailed, from shapes) -> decode, verify, time (judge) -> floor -> worth data? -> same program? reuse ->
search gate (one secret data set of the run) -> strict gate (fresh seeds, every distribution, hidden shapes, admission).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from acceld.config import EvaluateConfig
from acceld.errors import DeviceError
from acceld.evaluate import policy
from acceld.evaluate.correctness.admission import Admissions
from acceld.evaluate.correctness.gates import RunSeeds
from acceld.evaluate.correctness.noise import Floors
from acceld.evaluate.interface import EvaluationRequest, Priority
from acceld.evaluate.queue import SlotQueue, slots_of
from acceld.evaluate.sandbox.jail import Level
from acceld.evaluate.sandbox.ladder import SandboxReport, probe_level
from acceld.evaluate.simulated import simulator
from acceld.evaluate.simulated.case import Bad, Case
from acceld.evaluate.simulated.checking import Checker
from acceld.evaluate.simulated.children import Children
from acceld.evaluate.simulated.timer import Arguments, Timer
from acceld.model import Correctness, Evaluation, Failure, Gate, Kernel, Status
from acceld.roofline import floor_us, percent_of_attainable, percent_of_peak
from acceld.workloads import Workload, load_workload, workload

_REMEMBERED = 4096


@dataclass(slots=True)
class _Known:
    """What is known of a program on one workload and chip."""

    checks: dict[Gate, Correctness] = field(default_factory=dict)
    failed: dict[Gate, Bad] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Work:
    """What does the judging while the evaluator runs."""

    children: Children
    timer: Timer
    checker: Checker


class Judge:
    """Judges candidates on the simulator, in child processes. Implements :class:`acceld.evaluate.interface.Evaluator`."""

    def __init__(
        self,
        config: EvaluateConfig,
        state_folder: Path,
        *,
        workload_folders: Iterable[Path | str] = (),
        highest: Level = Level.L4,
        on_start: Callable[[EvaluationRequest, str], Awaitable[None]] | None = None,
        share_data: bool = False,
    ) -> None:
        """``on_start`` is told of each evaluation that gets a slot, with the slot's name.

        ``share_data``: the strict gate draws its data sets once a run, where it would for each candidate.
        """
        self._share_data = share_data
        self._on_start = on_start
        self._config = config
        self._folder = state_folder
        self._workload_folders = tuple(workload_folders)
        self._highest = highest
        self._work: _Work | None = None
        self._queue = SlotQueue(slots_of(config), config.queue_size)
        self._running: set[asyncio.Task[Any]] = set()
        self._seeds = RunSeeds()
        self._known: OrderedDict[tuple[str, str, str], _Known] = OrderedDict()
        self._floors = Floors(state_folder / "floors")
        self._admissions = Admissions(state_folder / "floors")
        self.report: SandboxReport | None = None

    async def start(self) -> None:
        """Find the sandbox level and start the child processes.

        DeviceError where the level is below the one that the configuration demands.
        """
        self.report = await probe_level(self._highest)
        wanted = self._config.sandbox
        if wanted != "auto" and self.report.level < Level[wanted]:
            reasons = "; ".join(f"{level.name}: {why}" for level, why in self.report.refused)
            raise DeviceError(
                f"the sandbox reaches {self.report.level.name}, [evaluate] sandbox demands {wanted}",
                hint=f"{reasons}. `acceld doctor` shows what is missing.",
            )
        folder, report = self._folder / "datasets", self.report
        children = Children(self._config, folder, report.level, report.cgroup_folder, floors=self._floors)
        timer = Timer(self._config, children)
        checker = Checker(
            self._config,
            children,
            timer,
            self._floors,
            self._admissions,
            share_data=self._share_data,
            idle=lambda: self._queue.idle,
        )
        self._work = _Work(children, timer, checker)
        await children.start()

    async def stop(self, grace_s: float) -> None:
        """Let nothing new begin, give what runs ``grace_s``, then end every child and its tree."""
        self._queue.close()
        running = [task for task in self._running if task is not asyncio.current_task()]
        if running:
            _, late = await asyncio.wait(running, timeout=grace_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if self._work is not None:
            work, self._work = self._work, None
            await work.children.stop()

    def forget(self) -> None:
        """Judge programs that were judged before once more."""
        self._known.clear()

    def statistics(self) -> dict[str, object]:
        """Depth and age of the queue, slots in use, sandbox level."""
        level = self.report.level.name if self.report else ""
        return {**self._queue.statistics(), "sandbox_level": level}

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """Wait for a place, judge, and return the verdict.

        WorkloadError for a workload that can not be used, DeviceError where the sandbox forbids it, SandboxError
        where the harness broke.
        """
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            async with self._queue.place(request.priority) as slot:
                if self._on_start is not None:
                    await self._on_start(request, f"{simulator.NAME}:{slot}")
                loaded = await asyncio.to_thread(self._load, request)
                return await self._judge(Case(request, loaded), loaded)
        finally:
            self._running.discard(task)

    async def time(self, kernel: Kernel, arguments: Arguments, chip: str) -> Evaluation:
        """Trace, verify and time a kernel that has no workload: ``unchecked``, or why not."""
        request = EvaluationRequest(kernel, "", chip, gate=Gate.TIMING, priority=Priority.PERSON)
        async with self._queue.place(request.priority):
            case, work = Case(request, None), self._need()
            try:
                bad = await self._refused(kernel) or await work.timer.time(case, arguments)
                return self._result(case, *bad) if bad else self._result(case, Status.UNCHECKED)
            finally:
                case.close()

    def _load(self, request: EvaluationRequest) -> Workload:
        if request.workload_folder:
            return load_workload(request.workload_folder)
        return workload(request.workload, self._workload_folders)

    async def _judge(self, case: Case, loaded: Workload) -> Evaluation:
        """The way of one candidate."""
        work, request = self._need(), case.request
        try:
            bad = await self._refused(request.kernel) or await work.timer.time(case, loaded.kernel_arguments())
            bad = bad or _too_fast(case, loaded)
            if bad is not None:
                return self._result(case, *bad)
            latency, useful = case.profile.latency_us if case.profile else None, request.useful_below_us
            if request.gate is Gate.TIMING or (useful is not None and latency is not None and latency > useful):
                return self._result(case, Status.UNTESTED)
            return await self._check(case, loaded, work.checker)
        finally:
            case.close()
            await work.children.trim(self._config.cache_bytes)

    async def _refused(self, kernel: Kernel) -> Bad | None:
        """Why the kernel's code is not run at all; None where it may be. DeviceError where nothing holds it here."""
        assert self.report is not None
        if kernel.trusted:
            return None
        if not (self.report.untrusted_allowed or self._config.allow_unsandboxed):
            raise DeviceError(
                "no sandbox works here, so code that nobody vouches for is not run",
                hint="`acceld doctor` shows why. To run it all the same, set allow_unsandboxed in [evaluate].",
            )
        broken = await asyncio.to_thread(policy.check, kernel.text, kernel.filename)
        if broken is None:
            return None
        return Status.COMPILE_ERROR if broken.rule == "syntax" else Status.REJECTED, broken, None

    async def _check(self, case: Case, loaded: Workload, checker: Checker) -> Evaluation:
        """The gates asked for, each once a program."""
        assert case.inspected is not None
        # Two sources may make one program at this shape and differ at a hidden one.
        source = case.request.kernel.sha256 if loaded.hidden else ""
        known = self._remember((loaded.hash, case.request.chip, case.inspected.program_sha256 + source))
        gates = [Gate.SEARCH] if case.request.gate is Gate.SEARCH else [Gate.SEARCH, Gate.STRICT]
        reused = True
        for gate in gates:
            if gate in known.failed:
                return self._result(case, *known.failed[gate], reused=reused)
            if gate in known.checks or (gate is Gate.SEARCH and Gate.STRICT in known.checks):
                continue
            reused = False
            failed = await checker.pass_gate(case, loaded, gate, self._seeds.of(case.request.run, loaded))
            if failed is not None:
                known.failed[gate] = failed
                return self._result(case, *failed)
            known.checks[gate] = case.correctness(gate)
            if gate is Gate.STRICT:
                verdict = await checker.published(case, loaded)
                known.checks[gate] = replace(known.checks[gate], accelopt_verdict=verdict)
        best = known.checks.get(Gate.STRICT) or known.checks[Gate.SEARCH]
        return self._result(case, Status.PASSED, None, best, reused=reused)

    def _result(
        self,
        case: Case,
        status: Status,
        failure: Failure | None = None,
        correctness: Correctness | None = None,
        *,
        reused: bool = False,
    ) -> Evaluation:
        latency = case.profile.latency_us if case.profile else None
        loaded, chip = case.workload, case.request.chip
        assert self.report is not None
        return Evaluation(
            status=status,
            source_sha256=case.request.kernel.sha256,
            program_sha256=case.inspected.program_sha256 if case.inspected else "",
            failure=failure,
            correctness=correctness,
            profile=case.profile,
            percent_of_peak=percent_of_peak(loaded, latency, chip) if loaded and latency else None,
            percent_of_attainable=percent_of_attainable(loaded, latency, chip) if loaded and latency else None,
            sandbox_level=self.report.level.name,
            seconds=dict(case.seconds),
            reused=reused,
        )

    def _remember(self, key: tuple[str, str, str]) -> _Known:
        known = self._known.pop(key, None) or _Known()
        self._known[key] = known
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return known

    def _need(self) -> _Work:
        if self._work is None:
            raise DeviceError("the evaluator is not running", hint="start() it first")
        return self._work


def _too_fast(case: Case, loaded: Workload) -> Bad | None:
    """A latency below what the declared work takes at least; None where it is possible."""
    latency, least_us = case.profile.latency_us if case.profile else None, floor_us(loaded, case.request.chip)
    if latency is None or least_us is None or latency >= least_us:
        return None
    message = f"{latency:.4g} us is less than the {least_us:.4g} us that moving and multiplying take at least"
    hint = "Either work is missing, or the workload declares too much. Check it by another method."
    return Status.SUSPECT, Failure("below_floor", message, hint=hint), None
