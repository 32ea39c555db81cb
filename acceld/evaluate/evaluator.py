"""The evaluator: takes a candidate through the order of judging, cheap checks first.

policy -> trace (jailed, from shapes) -> decode, verify, time (judge) -> same program? reuse -> floor ->
search gate (one secret data set of the run) -> strict gate (fresh seeds, every distribution).
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from acceld.backends import simulator
from acceld.config import EvaluateConfig
from acceld.errors import DeviceError, WorkloadError
from acceld.evaluate import policy
from acceld.evaluate.admission import Admissions
from acceld.evaluate.base import EvaluationRequest, Priority
from acceld.evaluate.checks import HINTS, WEAK, bounded, correctness_of, near, placed, worst_row
from acceld.evaluate.children import Children, Failed, Inspected, Refused, Traced
from acceld.evaluate.correctness import Errors
from acceld.evaluate.datasets import DataSet
from acceld.evaluate.distributions import OWN
from acceld.evaluate.floors import Floors
from acceld.evaluate.gates import (
    DEAR_S,
    Seeds,
    Trial,
    fresh_seed,
    judge_errors,
    published_trials,
    search_trial,
    strict_trials,
)
from acceld.evaluate.jail import Level
from acceld.evaluate.queue import SlotQueue, slots_of
from acceld.evaluate.sandbox import SandboxReport, probe_level
from acceld.evaluate.trials import first_failure
from acceld.model import Check, Correctness, Evaluation, Failure, Gate, Kernel, Profile, Status
from acceld.roofline import floor_us, percent_of_attainable, percent_of_peak
from acceld.workloads import ArraySpec, Workload, load_workload, workload

_REMEMBERED = 4096
_LEAST_CHECK_S = 30.0
_FIRST_CHECK_S = 600.0
"""Deadline of a trial while the baseline's own time is not known."""
_PUBLISHED_BELOW_S = 3.0
"""The published gate is run where one of its trials takes less than this, or where a person asked."""
_FULL_TIMING = 3
"""Times [evaluate] time_s that timing every execution of a very long program may take."""
_LIKE = 1.05
"""A latency extended from a part may be exceeded by this factor."""

Arguments = tuple[ArraySpec | float | int | bool, ...]


@dataclass(slots=True)
class _Known:
    """What is known of a program on one workload and chip."""

    checks: dict[Gate, Correctness] = field(default_factory=dict)
    failed: dict[Gate, tuple[Status, Failure, Correctness | None]] = field(default_factory=dict)


@dataclass(slots=True)
class _Case:
    """One evaluation under way."""

    request: EvaluationRequest
    workload: Workload | None
    traced: Traced | None = None
    inspected: Inspected | None = None
    profile: Profile | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    worst_row: float = 0.0

    @property
    def needs_proof(self) -> bool:
        """Whether its latency may be shown as a win: a baseline's is only what others are held against."""
        return self.request.priority is not Priority.BASELINE

    def correctness(self, gate: Gate) -> Correctness:
        """What the checks so far say."""
        return correctness_of(gate, self.checks, self.worst_row)

    def spend(self, seconds: dict[str, float]) -> None:
        """Add what a stage took."""
        for name, value in seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + value


class Judge:
    """Judges candidates on the simulator, in child processes. Implements :class:`acceld.evaluate.base.Evaluator`."""

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
        self._children: Children | None = None
        self._queue = SlotQueue(slots_of(config), config.queue_size)
        self._running: set[asyncio.Task[Any]] = set()
        self._seeds: OrderedDict[tuple[int, str], Seeds] = OrderedDict()
        self._known: OrderedDict[tuple[str, str, str], _Known] = OrderedDict()
        self._floors = Floors(state_folder / "floors")
        self._admissions = Admissions(state_folder / "floors")
        self._own_seconds: dict[str, float] = {}
        self._in_use: Counter[Path] = Counter()
        self._spent: set[Path] = set()
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
        self._children = Children(self._config, folder, report.level, report.cgroup_folder, floors=self._floors)
        await self._children.start()

    async def stop(self, grace_s: float) -> None:
        """Let nothing new begin, give what runs ``grace_s``, then end every child and its tree."""
        self._queue.close()
        running = [task for task in self._running if task is not asyncio.current_task()]
        if running:
            _, late = await asyncio.wait(running, timeout=grace_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if self._children is not None:
            await self._children.stop()
            self._children = None

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
                return await self._judge(_Case(request, loaded))
        finally:
            self._running.discard(task)

    async def time(self, kernel: Kernel, arguments: Arguments, chip: str) -> Evaluation:
        """Trace, verify and time a kernel that has no workload: ``unchecked``, or why not."""
        request = EvaluationRequest(kernel, "", chip, gate=Gate.TIMING, priority=Priority.PERSON)
        async with self._queue.place(request.priority):
            case = _Case(request, None)
            try:
                return await self._time(case, arguments) or self._result(case, Status.UNCHECKED)
            finally:
                _close(case)

    def _load(self, request: EvaluationRequest) -> Workload:
        if request.workload_folder:
            return load_workload(request.workload_folder)
        return workload(request.workload, self._workload_folders)

    async def _judge(self, case: _Case) -> Evaluation:
        loaded = case.workload
        assert loaded is not None
        try:
            early = await self._time(case, loaded.kernel_arguments())
            if early is not None:
                return early
            request, latency = case.request, case.profile.latency_us if case.profile else None
            least_us = floor_us(loaded, request.chip)
            if latency is not None and least_us is not None and latency < least_us:
                message = (
                    f"{latency:.4g} us is less than the {least_us:.4g} us that moving and multiplying take at least"
                )
                hint = "Either work is missing, or the workload declares too much. Check it by another method."
                return self._result(case, Status.SUSPECT, Failure("below_floor", message, hint=hint))
            useful = request.useful_below_us
            if request.gate is Gate.TIMING or (useful is not None and latency is not None and latency > useful):
                return self._result(case, Status.UNTESTED)
            return await self._check(case, loaded)
        finally:
            _close(case)
            if self._children is not None:
                await self._children.trim(self._config.cache_bytes)

    async def _time(self, case: _Case, arguments: Arguments) -> Evaluation | None:
        """Policy, trace, verify, timeline; an evaluation where one of them ends it."""
        children, request, kernel = self._need(), case.request, case.request.kernel
        assert self.report is not None
        if not kernel.trusted:
            if not (self.report.untrusted_allowed or self._config.allow_unsandboxed):
                raise DeviceError(
                    "no sandbox works here, so code that nobody vouches for is not run",
                    hint="`acceld doctor` shows why. To run it all the same, set allow_unsandboxed in [evaluate].",
                )
            broken = await asyncio.to_thread(policy.check, kernel.text, kernel.filename)
            if broken is not None:
                status = Status.COMPILE_ERROR if broken.rule == "syntax" else Status.REJECTED
                return self._result(case, status, broken)
        traced = await children.trace(kernel, arguments, request.chip)
        if isinstance(traced, Failed):
            return self._result(case, traced.status, traced.failure)
        case.traced = traced
        case.spend({"trace": traced.seconds})
        found = await children.inspect(traced, self._inspection(case, arguments))
        if isinstance(found, Failed):
            return self._result(case, found.status, found.failure)
        case.inspected = found
        case.spend(found.seconds)
        case.profile = simulator.profile_from(found.profile)
        return None

    def _inspection(self, case: _Case, arguments: Arguments) -> dict[str, Any]:
        kernel, loaded = case.request.kernel, case.workload
        outputs = None
        if loaded is not None:
            outputs = [
                {"name": o.name, "shape": o.shape, "kernel_shape": o.kernel_shape, "dtype": o.dtype}
                for o in loaded.outputs
            ]
        return {
            "api": kernel.api,
            "chip": case.request.chip,
            "grid": kernel.grid,
            "lnc": kernel.lnc,
            "inputs": [[one.shape, one.dtype] for one in arguments if isinstance(one, ArraySpec)],
            "outputs": outputs,
            "precision": loaded.precision if loaded is not None and loaded.dtype == "float32" else "",
            "strict_legality": self._config.strict_legality,
        }

    async def _check(self, case: _Case, loaded: Workload) -> Evaluation:
        assert case.inspected is not None
        # Two sources may make one program at this shape and differ at a hidden one.
        source = case.request.kernel.sha256 if loaded.hidden else ""
        key = (loaded.hash, case.request.chip, case.inspected.program_sha256 + source)
        known = self._remember(key)
        gates = [Gate.SEARCH] if case.request.gate is Gate.SEARCH else [Gate.SEARCH, Gate.STRICT]
        reused = True
        for gate in gates:
            if gate in known.failed:
                status, failure, correctness = known.failed[gate]
                return self._result(case, status, failure, correctness, reused=reused)
            if gate in known.checks or (gate is Gate.SEARCH and Gate.STRICT in known.checks):
                continue
            reused = False
            failed = await self._pass(case, loaded, gate)
            if failed is not None:
                known.failed[gate] = failed
                return self._result(case, *failed)
            known.checks[gate] = case.correctness(gate)
            if gate is Gate.STRICT:
                verdict = await self._published(case, loaded)
                known.checks[gate] = replace(known.checks[gate], accelopt_verdict=verdict)
        best = known.checks.get(Gate.STRICT) or known.checks[Gate.SEARCH]
        return self._result(case, Status.PASSED, None, best, reused=reused)

    async def _pass(
        self, case: _Case, loaded: Workload, gate: Gate
    ) -> tuple[Status, Failure, Correctness | None] | None:
        """Every trial of one gate; None where all pass."""
        case.checks, case.worst_row = [], 0.0
        seeds = self._seeds_of(case.request.run, loaded)
        if gate is Gate.SEARCH:
            return await self._try(case, loaded, search_trial(seeds), gate)
        unlike = await self._timed_in_full(case, loaded)
        if unlike is not None:
            return unlike
        cost = await asyncio.to_thread(self._floors.of_numpy, loaded, "own")
        dear = cost is not None and cost.seconds > DEAR_S
        trials = strict_trials(loaded, seeds, dear=dear, shared=self._share_data)
        failed = await first_failure(
            trials, lambda trial: self._try(case, loaded, trial, gate), lambda: self._queue.idle
        )
        order = {trial.name: position for position, trial in enumerate(trials)}
        case.checks.sort(key=lambda check: order[check.name.partition(" (")[0]])
        for values in () if failed else loaded.hidden:
            failed = failed or await self._elsewhere(case, loaded, values)
        if failed is None and case.needs_proof:
            weak = await self._admissions.complaint(self._need(), loaded, fresh_seed(), dear=dear)
            if weak:
                return Status.SUSPECT, Failure("admission", f"workload {loaded.name}: {weak}", hint=WEAK), None
        return failed

    async def _elsewhere(
        self, case: _Case, loaded: Workload, values: Mapping[str, int]
    ) -> tuple[Status, Failure, Correctness | None] | None:
        """The same source at a shape it was not told of; None where it is right there too."""
        shaped = await asyncio.to_thread(load_workload, loaded.folder, values)
        there, where = _Case(case.request, shaped), ", ".join(f"{name}={size}" for name, size in values.items())
        try:
            early = await self._time(there, shaped.kernel_arguments())
            if early is not None and early.failure is not None:
                return early.status, placed(early.failure, where), None
            failed = await self._try(there, shaped, Trial(OWN, fresh_seed()), Gate.STRICT)
        finally:
            _close(there)
        case.checks += [replace(check, name=f"hidden shape {where}") for check in there.checks]
        return failed and (failed[0], placed(failed[1], where), case.correctness(Gate.STRICT))

    async def _timed_in_full(self, case: _Case, loaded: Workload) -> tuple[Status, Failure, Correctness | None] | None:
        """A latency that was extended from a program's first executions must hold for all of them; None where it does."""
        if case.profile is None or not case.profile.details.get("extrapolated") or not case.needs_proof:
            return None
        assert case.traced is not None
        header = {**self._inspection(case, loaded.kernel_arguments()), "exact": True}
        found = await self._need().inspect(case.traced, header, deadline_s=_FULL_TIMING * self._config.time_s)
        message = "it executes too many instructions to be timed in full"
        if isinstance(found, Inspected) and not found.profile["extrapolated"]:
            guessed = case.profile.latency_us or 0.0
            case.profile = simulator.profile_from(found.profile)
            latency = case.profile.latency_us or 0.0
            if latency <= _LIKE * guessed:
                return None
            message = f"timed in full it takes {latency:.4g} us, its first executions foretell {guessed:.4g} us"
        hint = "Give its loops fewer iterations that each do more."
        return Status.SUSPECT, Failure("extrapolated", message, hint=hint), None

    async def _try(
        self, case: _Case, loaded: Workload, trial: Trial, gate: Gate
    ) -> tuple[Status, Failure, Correctness | None] | None:
        """One data set; None where the program passes or the variant is refused."""
        children = self._need()
        data = await children.data_set(loaded, trial.variant, trial.seed)
        if isinstance(data, Refused):
            if trial.variant == OWN:
                raise WorkloadError(f"workload {loaded.name!r} can not be checked: {data.reason}")
            case.checks.append(Check(f"{trial.name} (not tried: {data.reason})", True))
            return None
        try:
            self._in_use[data.folder] += 1
            assert case.traced is not None
            case.spend({"reference": data.seconds})
            tried = await children.attempt(case.traced, data, trial, self._deadline_s(loaded))
            if isinstance(tried, Failed):
                return tried.status, tried.failure, None
            case.spend(tried.seconds)
            if case.request.priority is Priority.BASELINE:
                took = sum(tried.seconds.values())
                self._own_seconds[loaded.hash] = max(self._own_seconds.get(loaded.hash, 0.0), took)
            verdict = judge_errors(loaded, trial, tried.errors, data.floors, None)
            if not verdict.check.passed and verdict.errors.finite:
                noise = await self._floors.of_baseline(children, loaded, case.request, data, trial)
                verdict = judge_errors(loaded, trial, tried.errors, data.floors, noise)
                if near(verdict.check):
                    floors = await self._floors_here(loaded, trial)
                    verdict = judge_errors(loaded, trial, tried.errors, floors or data.floors, noise)
        finally:
            await self._leave(data, trial)
        case.checks.append(bounded(verdict.check))
        case.worst_row = max(case.worst_row, worst_row(verdict.errors))
        if verdict.check.passed:
            return None
        failure = Failure("tolerance", f"{trial.name}: {verdict.check.detail}", hint=HINTS.get(trial.variant, ""))
        return Status.INCORRECT_NUMERICAL, failure, case.correctness(gate)

    async def _floors_here(self, loaded: Workload, trial: Trial) -> tuple[Errors, ...]:
        """The noise of numpy's float32 arithmetic on a trial's very inputs; empty where there is none."""
        data = await self._need().data_set(loaded, trial.variant, trial.seed, measured=True)
        if isinstance(data, Refused):
            return ()
        await asyncio.to_thread(data.discard)
        return data.floors

    async def _leave(self, data: DataSet, trial: Trial) -> None:
        """Remove a data set that no trial needs any more; two trials of one may be under way."""
        self._in_use[data.folder] -= 1
        if not trial.kept:
            self._spent.add(data.folder)
        if not self._in_use[data.folder]:
            del self._in_use[data.folder]
            if data.folder in self._spent:
                self._spent.discard(data.folder)
                await asyncio.to_thread(data.discard)

    def _seeds_of(self, run: int, loaded: Workload) -> Seeds:
        """The run's secret seeds; requests outside of a run share none."""
        if not run:
            return Seeds()
        key = (run, loaded.hash)
        found = self._seeds.pop(key, None) or Seeds()
        self._seeds[key] = found
        while len(self._seeds) > _REMEMBERED:
            self._seeds.popitem(last=False)
        return found

    async def _published(self, case: _Case, loaded: Workload) -> bool | None:
        """What the published gate says; None where it is too dear to ask."""
        per_trial_s = (case.seconds.get("reference", 0.0) + case.seconds.get("execute", 0.0)) / max(1, len(case.checks))
        if per_trial_s > _PUBLISHED_BELOW_S and case.request.priority is not Priority.PERSON:
            return None
        trials = list(published_trials(loaded))
        for trial in trials:
            data = await self._need().data_set(loaded, trial.variant, trial.seed)
            if isinstance(data, Refused) or case.traced is None:
                return None
            tried = await self._need().attempt(case.traced, data, trial, self._deadline_s(loaded))
            if isinstance(tried, Failed):
                return False
            if not judge_errors(loaded, trial, tried.errors, data.floors, None).check.passed:
                return False
        return True if trials else None

    def _result(
        self,
        case: _Case,
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

    def _deadline_s(self, loaded: Workload) -> float:
        if self._config.check_s:
            return self._config.check_s
        own = self._own_seconds.get(loaded.hash)
        return _FIRST_CHECK_S if own is None else max(_LEAST_CHECK_S, 20 * own)

    def _need(self) -> Children:
        if self._children is None:
            raise DeviceError("the evaluator is not running", hint="start() it first")
        return self._children


def _close(case: _Case) -> None:
    if case.traced is not None:
        case.traced.close()
