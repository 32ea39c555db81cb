"""The evaluator of the Neuron backends: the order of judging, with a chip at its end.

policy and simulator -> compile in the jail, from shapes -> hash -> search gate on one leased core (one secret data set of
the run) -> strict gate there (fresh seeds, every distribution) -> timing in an isolation group, in turn with the kernels
it is held against -> a fresh data set once more.

A kernel that fails is a value. A core that is lost under a kernel gets a canary and the kernel another core; what no
known-good kernel survives is the device's fault, what only this kernel does not survive is the kernel's.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from acceld.backends.neuron.cache import Compiled
from acceld.backends.neuron.compiler import unjailed
from acceld.backends.neuron.requests import CompileRequest, Scalar, Tensor
from acceld.backends.neuron.runner import DeviceLostError, NeuronRunner
from acceld.backends.neuron.timing import MAX_ROUNDS, Measurement, ProofError, Round, choose, profile_from
from acceld.backends.neuron.verdicts import Verdict
from acceld.config import DevicesConfig, EvaluateConfig
from acceld.errors import DeviceError, UsageError, WorkloadError
from acceld.evaluate import datasets, policy
from acceld.evaluate.base import EvaluationRequest, Evaluator
from acceld.evaluate.children import Children, Refused
from acceld.evaluate.correctness import Errors, compare
from acceld.evaluate.datasets import DataSet
from acceld.evaluate.distributions import OWN
from acceld.evaluate.floors import Floors
from acceld.evaluate.gates import DEAR_S, Seeds, Trial, fresh_seed, judge_errors, search_trial, strict_trials
from acceld.evaluate.jail import Level
from acceld.evaluate.neuron.calibration import isolation_of
from acceld.evaluate.neuron.jailed import JailedExchange
from acceld.evaluate.neuron.machine import Machine, find_machine
from acceld.evaluate.neuron.paired import ROUNDS, Paired, paired
from acceld.evaluate.neuron.screen import Screen
from acceld.evaluate.queue import SlotQueue, slots_of
from acceld.evaluate.sandbox import SandboxReport, probe_level
from acceld.model import Check, Correctness, Evaluation, Failure, Gate, Kernel, Profile, Status
from acceld.nki.errors import KernelFailure
from acceld.nki.tracing import find_entry
from acceld.roofline import floor_us, percent_of_attainable, percent_of_peak
from acceld.targets import SIMULATOR, TARGETS
from acceld.workloads import ArraySpec, Workload, load_workload, workload
from acceld.workloads.inputs import numpy_dtype

TRIES = 3
"""Cores a kernel is tried on when the runner or the device is lost under it."""
LEAST_CHECK_S = 60.0
RECOVER_S = 300.0
"""How long a core stays out of service before canaries are tried on it again."""
_CACHE_BYTES = 8 << 30
_REMEMBERED = 4096
T = TypeVar("T")

Bad = tuple[Status, Failure, Correctness | None]
Started = Callable[[EvaluationRequest, str], Awaitable[None]]
Notice = Callable[[int, str, str], Awaitable[object]]
"""Told of what people should know of a run: its id, info or warning, and the text."""


@dataclass(slots=True)
class _Case:
    """One evaluation under way."""

    request: EvaluationRequest
    workload: Workload
    seeds: Seeds
    compiled: Compiled | None = None
    asked: CompileRequest | None = None
    profile: Profile | None = None
    simulated: Evaluation | None = None
    checks: list[Check] = field(default_factory=list)
    worst_row: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """What leases know the kernel by: canaries that fail after it count against it."""
        return self.request.kernel.sha256

    @contextlib.contextmanager
    def stage(self, name: str) -> Any:
        """Add what a stage takes."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - began


@dataclass(frozen=True, slots=True)
class _Rounds:
    """Rounds by slot, and the runtime that took them."""

    rounds: list[list[Round]]
    runtime: str


class NeuronJudge:
    """Judges candidates on Trainium. Implements :class:`acceld.evaluate.base.Evaluator`."""

    def __init__(
        self,
        backend: str,
        config: EvaluateConfig,
        devices: DevicesConfig,
        state_folder: Path,
        simulator: Callable[[], Awaitable[Evaluator]],
        *,
        workload_folders: Iterable[Path | str] = (),
        on_start: Started | None = None,
        on_notice: Notice | None = None,
    ) -> None:
        """``simulator`` answers with the evaluator that predicts; ``on_start`` is told of each evaluation that begins."""
        self.backend = backend
        self._config = config
        self._devices = devices
        self._folder = state_folder
        self._simulator = simulator
        self._workload_folders = tuple(workload_folders)
        self._on_start = on_start
        self._on_notice = on_notice
        self._floors = Floors(state_folder / "floors")
        self._children: Children | None = None
        self._exchange: JailedExchange | None = None
        self._machine: Machine | None = None
        self._queue = SlotQueue(slots_of(config), config.queue_size)
        self._compiling = asyncio.Semaphore(slots_of(config))
        self._running: set[asyncio.Task[Any]] = set()
        self._seeds: OrderedDict[tuple[int, str], Seeds] = OrderedDict()
        self._measured: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._screen = Screen()
        self._recovered = time.monotonic()
        self.report: SandboxReport | None = None

    async def start(self) -> None:
        """Find toolchain, cores and sandbox, and prove them with a known-good kernel. DeviceError where one is missing."""
        config, devices = self._config, self._devices
        found = await find_machine(
            self.backend,
            compile_python=devices.compile_python,
            runner_python=devices.runner_python,
            wanted=devices.cores,
        )
        self.report = report = await probe_level()
        if report.level < Level.L1 and not config.allow_unsandboxed:
            raise DeviceError(
                "no sandbox works here, so nothing is compiled",
                hint="`acceld doctor` shows why. To compile all the same, set allow_unsandboxed in [evaluate].",
            )
        if config.sandbox != "auto" and report.level < Level[config.sandbox]:
            raise DeviceError(
                f"the sandbox reaches {report.level.name}, [evaluate] sandbox demands {config.sandbox}",
                hint="`acceld doctor` shows what is missing",
            )
        try:
            folder = self._folder / "datasets"
            self._children = Children(config, folder, report.level, report.cgroup_folder, floors=self._floors)
            await self._children.start()
            memory_bytes = int(config.memory_gib * 2**30)
            self._exchange = JailedExchange(report.level, report.cgroup_folder, memory_bytes=memory_bytes)
            await self._exchange.start()
            self._machine = Machine(
                self.backend,
                found,
                self._exchange if report.level >= Level.L1 else unjailed,
                folder=self._folder / "neuron",
                isolation=await asyncio.to_thread(isolation_of, self._folder),
                build_s=max(config.build_s, 600.0),
            )
            self._queue = SlotQueue(slots_of(config) + len(found.cores), config.queue_size)
            await self._machine.prove()
        except BaseException:
            await self.stop(0.0)
            raise

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
        if self._exchange is not None:
            await self._exchange.stop()
        self._children, self._exchange, self._machine = None, None, None

    def statistics(self) -> dict[str, object]:
        """The queue, the cores (state, who waits, utilization of all and of each), compilations, sandbox level."""
        machine = self._machine
        return {
            **self._queue.statistics(),
            "sandbox_level": self.report.level.name if self.report else "",
            "compiled": machine.compiler.compiled if machine else 0,
            "devices": machine.leases.statistics() if machine else {},
            "screen": self._screen.plain(),
        }

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """Wait for a place, judge, and return the verdict; errors as :class:`~acceld.evaluate.base.Evaluator` says."""
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            async with self._queue.place(request.priority) as slot:
                if self._on_start is not None:
                    await self._on_start(request, f"{self.backend}:{slot}")
                self._check_chip(request)
                loaded = await asyncio.to_thread(self._load, request)
                return await self._judge(_Case(request, loaded, self._seeds_of(request.run, loaded)))
        finally:
            self._running.discard(task)

    def _load(self, request: EvaluationRequest) -> Workload:
        if request.workload_folder:
            return load_workload(request.workload_folder)
        return workload(request.workload, self._workload_folders)

    def _check_chip(self, request: EvaluationRequest) -> None:
        machine = self._need()
        if request.chip == machine.chip:
            return
        if machine.certain:
            raise UsageError(f"this machine is a {machine.chip}, not a {request.chip}", hint=f"--chip {machine.chip}")
        machine.chip = request.chip

    async def _judge(self, case: _Case) -> Evaluation:
        request, kernel = case.request, case.request.kernel
        if not kernel.trusted:
            broken = await asyncio.to_thread(policy.check, kernel.text, kernel.filename)
            if broken is not None:
                status = Status.COMPILE_ERROR if broken.rule == "syntax" else Status.REJECTED
                return self._result(case, status, broken)
        predicting = asyncio.create_task(self._predict(case, kernel))
        try:
            if request.screen and (dropped := await self._screened(case, await predicting)) is not None:
                return dropped
            built = await self._compile(case, kernel)
            case.simulated = await predicting
        finally:
            predicting.cancel()
            await asyncio.gather(predicting, return_exceptions=True)
        predicted = case.simulated
        if predicted is not None and predicted.status is Status.REJECTED and predicted.failure is not None:
            return self._result(case, Status.REJECTED, predicted.failure)
        if isinstance(built, Verdict):
            return self._result(case, built.status, built.failure)
        case.asked, case.compiled = built
        if request.gate is not Gate.TIMING and (bad := await self._pass_gates(case)) is not None:
            return self._result(case, *bad)
        timed = await self._time(case)
        if isinstance(timed, Verdict):
            return self._result(case, timed.status, timed.failure)
        if isinstance(timed, tuple):
            return self._result(case, *timed)
        return await self._timed(case, timed)

    async def _timed(self, case: _Case, profile: Profile) -> Evaluation:
        request, latency_us = case.request, profile.latency_us
        assert latency_us is not None
        case.profile = profile
        least_us = floor_us(case.workload, request.chip)
        if least_us is not None and latency_us < least_us:
            message = (
                f"{latency_us:.4g} us is less than the {least_us:.4g} us that moving and multiplying take at least"
            )
            hint = "Either work is missing, or the workload declares too much. Check it by another method."
            return self._result(case, Status.SUSPECT, Failure("below_floor", message, hint=hint))
        if request.gate is Gate.TIMING:
            return self._result(case, Status.UNTESTED)
        if request.screen:
            await self._screen_learns(case, latency_us)
        self._remember(case, latency_us)
        return self._result(case, Status.PASSED, None, self._correctness(case))

    # What the simulator says of a kernel.

    async def _predict(self, case: _Case, kernel: Kernel) -> Evaluation | None:
        """The simulator's evaluation without data; None where it does not know the chip."""
        request = case.request
        if request.chip not in TARGETS[SIMULATOR].chips.get(kernel.api, ()):
            return None
        simulator = await self._simulator()
        asked = replace(request, kernel=kernel, backend=SIMULATOR, gate=Gate.TIMING, candidate=0, against=())
        return await simulator.evaluate(replace(asked, screen=False, useful_below_us=None))

    async def _screened(self, case: _Case, predicted: Evaluation | None) -> Evaluation | None:
        """The end of a candidate that the simulator finds clearly slower than its parent; None for all others."""
        parents = case.request.against
        if not parents or predicted is None or predicted.profile is None or not self._screen.on:
            return None
        parent = await self._predict(case, parents[0])
        choice = self._screen.choose(case.request, predicted.profile, parent.profile if parent else None)
        if choice is None:
            return None
        case.details["screen"] = choice.plain()
        if choice.measured:
            return None
        case.simulated = predicted
        profile = replace(
            predicted.profile,
            latency_us=None,
            notes=("not measured: the simulator finds it slower than its parent",),
            details={**case.details, "simulated_latency_us": predicted.profile.latency_us},
        )
        case.profile = profile
        return self._result(case, Status.UNTESTED)

    async def _screen_learns(self, case: _Case, latency_us: float) -> None:
        choice = case.details.get("screen")
        parent_us = self._measured.get(self._name(case, case.request.against[0])) if case.request.against else None
        if choice is None or parent_us is None:
            return
        was_on = self._screen.on
        choice["wrong"] = self._screen.learn(latency_us, parent_us, self._band_percent(case))
        if self._on_notice is None:
            return
        run = case.request.run
        if choice["wrong"]:
            text = f"screening would have dropped c{case.request.candidate}, which is faster than its parent"
            await self._on_notice(run, "warning", text)
        if was_on and not self._screen.on:
            await self._on_notice(run, "warning", f"screening is off: {self._screen.text}")

    def _band_percent(self, case: _Case) -> float:
        assert case.profile is not None
        return float(case.profile.details["prediction"]["paired_band"]["mixed"])

    # Compiling.

    async def _compile(self, case: _Case, kernel: Kernel) -> tuple[CompileRequest, Compiled] | Verdict:
        try:
            request = await asyncio.to_thread(self._request, kernel, case.workload)
        except (KernelFailure, UsageError) as error:
            return Verdict(Status.COMPILE_ERROR, Failure("entry", error.message, hint=error.hint))
        with case.stage("compile"):
            async with self._compiling:
                compiled = await self._need().compiler.compile(request)
        return compiled if isinstance(compiled, Verdict) else (request, compiled)

    def _request(self, kernel: Kernel, loaded: Workload) -> CompileRequest:
        """Names of the kernel's own parameters are those of the NEFF's inputs; arguments go by position."""
        entry = find_entry(kernel.text, kernel.entry or None)
        names = _parameters(kernel.text, entry)
        given = loaded.kernel_arguments()
        if names and len(names) < len(given):
            raise UsageError(f"{entry} takes {len(names)} arguments, the workload gives {len(given)}")
        names = names or [argument.name for argument in loaded.arguments]
        tensors: list[Tensor] = []
        scalars: dict[str, Scalar] = {}
        for name, value in zip(names, given, strict=False):
            if isinstance(value, ArraySpec):
                tensors.append(Tensor(name, value.dtype, value.shape))
            else:
                scalars[name] = value
        return self._need().request(replace(kernel, entry=entry), tensors, scalars)

    # On a core.

    async def _on_core(self, case: _Case, *, timing: bool, work: Callable[[NeuronRunner], Awaitable[T]]) -> T | Verdict:
        """Do ``work`` with a runner on a leased core; on another core where the first is lost.

        DeviceError where no core can be had, and where there is no proof that one ran.
        """
        machine, request = self._need(), case.request
        await self._recover(machine)
        lost: list[tuple[int, DeviceError]] = []
        run = f"r{request.run}" if request.run else "-"
        while True:
            async with machine.leases.lease(run, timing=timing, candidate=case.identity) as lease:
                try:
                    async with machine.runner(lease, request.kernel.lnc) as runner:
                        return await work(runner)
                except (DeviceLostError, ProofError) as error:
                    lease.ended_unclean()
                    lost.append((lease.core.id, error))
            if (fault := machine.leases.device_fault(case.identity)) is not None:
                return fault
            last = lost[-1][1]
            if len(lost) < TRIES:
                continue
            if isinstance(last, ProofError):
                raise last
            cores = ", ".join(str(core) for core, _ in lost)
            text = f"the device was lost under it on cores {cores}, where known-good kernels run: {last.message}"
            return Verdict(Status.RUNTIME_ERROR, Failure("device_lost", text[:2000]))

    async def _recover(self, machine: Machine) -> None:
        """Try canaries again, now and then, on cores that are out of service."""
        if machine.leases.sick and time.monotonic() - self._recovered > RECOVER_S:
            self._recovered = time.monotonic()
            await machine.leases.check_again()

    async def _pass_gates(self, case: _Case) -> Bad | None:
        """Every trial of the gates asked for; None where all pass."""
        trials = [search_trial(case.seeds)]
        if case.request.gate is Gate.STRICT:
            cost = await asyncio.to_thread(self._floors.of_numpy, case.workload, OWN)
            dear = cost is not None and cost.seconds > DEAR_S
            # The order of loops is fixed in a NEFF: there is nothing to shuffle.
            trials += [one for one in strict_trials(case.workload, case.seeds, dear=dear) if not one.shuffled]

        async def work(runner: NeuronRunner) -> Bad | Verdict | None:
            case.checks, case.worst_row = [], 0.0
            if (bad := await self._load_neff(case, runner, 0, case.asked, case.compiled)) is not None:
                return bad
            for trial in trials:
                if (failed := await self._try(case, runner, trial)) is not None:
                    return failed
            return None

        with case.stage("check"):
            found = await self._on_core(case, timing=False, work=work)
        return (found.status, found.failure, None) if isinstance(found, Verdict) else found

    async def _load_neff(
        self, case: _Case, runner: NeuronRunner, slot: int, asked: CompileRequest | None, compiled: Compiled | None
    ) -> Verdict | None:
        assert asked is not None
        assert compiled is not None
        outputs = [
            Tensor(f"output_{number}", one.dtype, one.kernel_shape) for number, one in enumerate(case.workload.outputs)
        ]
        return await runner.load(compiled, asked.arguments, outputs, slot=slot, deadline_s=self._check_s)

    @property
    def _check_s(self) -> float:
        return max(self._config.check_s, LEAST_CHECK_S)

    async def _try(self, case: _Case, runner: NeuronRunner, trial: Trial, name: str = "") -> Bad | Verdict | None:
        """One data set; None where the kernel passes or the variant is refused."""
        children, loaded = self._need_children(), case.workload
        data = await children.data_set(loaded, trial.variant, trial.seed)
        if isinstance(data, Refused):
            if trial.variant == OWN:
                raise WorkloadError(f"workload {loaded.name!r} can not be checked: {data.reason}")
            case.checks.append(Check(f"{trial.name} (not tried: {data.reason})", True))
            return None
        try:
            inputs = await asyncio.to_thread(_inputs, data)
            ran = await runner.run(inputs, deadline_s=self._check_s)
            if isinstance(ran, Verdict):
                return ran
            errors = await asyncio.to_thread(_errors, ran, data)
            verdict = judge_errors(loaded, trial, errors, data.floors, None)
            if not verdict.check.passed and verdict.errors.finite:
                noise = await self._noise_of_baseline(case, runner, data, inputs, trial)
                verdict = judge_errors(loaded, trial, errors, data.floors, noise)
        finally:
            if not trial.kept:
                await asyncio.to_thread(data.discard)
            await children.trim(_CACHE_BYTES)
        check = replace(verdict.check, name=name or verdict.check.name)
        rel_l2 = None if check.rel_l2 is None else min(check.rel_l2, 1e9)
        case.checks.append(replace(check, rel_l2=rel_l2))
        case.worst_row = max(case.worst_row, min(verdict.errors.worst_row, 1e9))
        if check.passed:
            return None
        failure = Failure("tolerance", f"{check.name}: {check.detail}")
        return Status.INCORRECT_NUMERICAL, failure, self._correctness(case)

    async def _noise_of_baseline(
        self, case: _Case, runner: NeuronRunner, data: DataSet, inputs: tuple[bytes, ...], trial: Trial
    ) -> Errors | None:
        """Errors of the workload's baseline on this chip and variant: measured once, in another slot of the runner."""
        request, loaded = case.request, case.workload
        stored = await asyncio.to_thread(self._floors.of_device, loaded, self.backend, request.chip, trial.variant)
        if stored is not None or request.kernel.api not in loaded.baselines:
            return stored
        from acceld.evaluate.baselines import baseline_kernel

        kernel = await asyncio.to_thread(baseline_kernel, loaded, request.kernel.api)
        built = await self._compile(case, kernel)
        if isinstance(built, Verdict) or await self._load_neff(case, runner, 1, *built) is not None:
            return None
        ran = await runner.run(inputs, slot=1, deadline_s=self._check_s)
        if isinstance(ran, Verdict):
            return None
        errors = await asyncio.to_thread(_errors, ran, data)
        return await asyncio.to_thread(
            self._floors.learn_device, loaded, self.backend, request.chip, trial.variant, errors, data
        )

    # Timing.

    async def _time(self, case: _Case) -> Profile | Verdict | Bad:
        """The profile, in turn with other kernels at the strict gate, and a fresh data set after the clock has stopped."""
        others: list[tuple[Kernel, CompileRequest, Compiled]] = []
        strict = case.request.gate is Gate.STRICT
        for kernel in case.request.against if strict else ():
            known = {one.sha256 for one, _, _ in others}
            if (
                kernel.sha256 in known
                or kernel.sha256 == case.request.kernel.sha256
                or kernel.lnc != case.request.kernel.lnc
            ):
                continue
            built = await self._compile(case, kernel)
            if not isinstance(built, Verdict):
                others.append((kernel, *built))
        data = await self._need_children().data_set(case.workload, OWN, search_trial(case.seeds).seed)
        if isinstance(data, Refused):
            raise WorkloadError(f"workload {case.workload.name!r} can not be timed: {data.reason}")
        inputs = await asyncio.to_thread(_inputs, data)

        async def work(runner: NeuronRunner) -> _Rounds | Verdict | Bad:
            loads = [(case.asked, case.compiled), *((asked, compiled) for _, asked, compiled in others)]
            for slot, (asked, compiled) in enumerate(loads):
                bad = await self._load_neff(case, runner, slot, asked, compiled)
                if bad is None:
                    ran = await runner.run(inputs, slot=slot, deadline_s=self._check_s)
                    bad = ran if isinstance(ran, Verdict) else None
                if bad is not None:
                    return bad
            rounds = await self._rounds(case, runner, len(loads))
            if isinstance(rounds, Verdict):
                return rounds
            if (
                strict
                and (failed := await self._try(case, runner, Trial(OWN, fresh_seed()), "after timing")) is not None
            ):
                return failed
            return _Rounds(rounds, runner.runtime)

        with case.stage("time"):
            found = await self._on_core(case, timing=True, work=work)
        if not isinstance(found, _Rounds):
            return found
        rounds = found.rounds
        measured = choose(rounds[0], case.request.chip, found.runtime)
        pairs = [
            paired(rounds[0], other, kernel.sha256) for other, (kernel, _, _) in zip(rounds[1:], others, strict=True)
        ]
        return self._profile(case, measured, pairs)

    async def _rounds(self, case: _Case, runner: NeuronRunner, count: int) -> list[list[Round]] | Verdict:
        """Rounds of all loaded kernels in turn, until the first is steady and there are enough to hold them together."""
        chip, ends = case.request.chip, time.monotonic() + self._config.time_s * count
        rounds: list[list[Round]] = [[] for _ in range(count)]
        least = ROUNDS if count > 1 else 1
        while len(rounds[0]) < MAX_ROUNDS:
            for slot in range(count):
                found = await runner.round(chip, slot=slot, deadline_s=max(ends - time.monotonic(), 0.0))
                if isinstance(found, Verdict):
                    return found
                rounds[slot].append(found)
            if len(rounds[0]) >= least and any(one.steady(chip) for one in rounds[0]):
                break
        return rounds

    def _profile(self, case: _Case, measured: Measurement, pairs: list[Paired]) -> Profile:
        assert case.compiled is not None
        assert case.asked is not None
        profile = profile_from(measured, case.compiled, case.asked)
        best, latency_us = measured.best, measured.latency_us
        alone_percent = 100.0 * max(best.spread_us, 2.0 * (best.resolution_us or 0.0)) / latency_us
        band = max((one.band_percent for one in pairs), default=alone_percent)
        predicted = case.simulated.profile if case.simulated else None
        simulated: dict[str, Any] = {"simulated_latency_us": predicted.latency_us if predicted else None}
        if predicted is not None:
            simulated["simulated_model"] = predicted.method
            simulated["simulated_interval_percent"] = predicted.interval_percent
        elif case.simulated is not None and case.simulated.failure is not None:
            simulated["simulated_failure"] = f"{case.simulated.status}: {case.simulated.failure.message}"[:500]
        details = {
            **profile.details,
            **case.details,
            **simulated,
            "paired": [one.plain() for one in pairs],
            "prediction": {"paired_band": {"mixed": band}},
        }
        return replace(profile, details=details)

    # Records.

    def _correctness(self, case: _Case) -> Correctness:
        tried = [check for check in case.checks if check.rel_l2 is not None]
        worst = max(tried, key=lambda c: (c.rel_l2 or 0.0) / (c.tolerance or 1.0), default=None)
        return Correctness(
            gate=case.request.gate,
            rel_l2=worst.rel_l2 if worst and worst.rel_l2 is not None else 0.0,
            tolerance=worst.tolerance if worst and worst.tolerance is not None else 0.0,
            worst_row=case.worst_row,
            checks=tuple(case.checks),
        )

    def _result(
        self, case: _Case, status: Status, failure: Failure | None = None, correctness: Correctness | None = None
    ) -> Evaluation:
        latency, chip = case.profile.latency_us if case.profile else None, case.request.chip
        assert self.report is not None
        return Evaluation(
            status=status,
            source_sha256=case.request.kernel.sha256,
            program_sha256=case.compiled.sha256 if case.compiled else "",
            failure=failure,
            correctness=correctness,
            profile=case.profile,
            percent_of_peak=percent_of_peak(case.workload, latency, chip) if latency else None,
            percent_of_attainable=percent_of_attainable(case.workload, latency, chip) if latency else None,
            sandbox_level=self.report.level.name,
            seconds=dict(case.seconds),
        )

    def _name(self, case: _Case, kernel: Kernel) -> tuple[str, str, str]:
        return (case.workload.hash, case.request.chip, kernel.sha256)

    def _remember(self, case: _Case, latency_us: float) -> None:
        self._measured[self._name(case, case.request.kernel)] = latency_us
        while len(self._measured) > _REMEMBERED:
            self._measured.popitem(last=False)

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

    def _need(self) -> Machine:
        if self._machine is None:
            raise DeviceError("the evaluator is not running", hint="start() it first")
        return self._machine

    def _need_children(self) -> Children:
        if self._children is None:
            raise DeviceError("the evaluator is not running", hint="start() it first")
        return self._children


def _inputs(data: DataSet) -> tuple[bytes, ...]:
    """The arrays of a data set in the kernel's layout, as bytes."""
    return tuple(one.tobytes() for one in datasets.read_inputs(data.folder) if isinstance(one, np.ndarray))


def _errors(outputs: tuple[bytes, ...], data: DataSet) -> list[Errors]:
    """The errors of each output's bytes."""
    found = []
    for raw, (want, dtype) in zip(outputs, datasets.read_expected(data.folder), strict=True):
        found.append(compare(np.frombuffer(raw, numpy_dtype(dtype)).reshape(want.shape), want))
    return found


def _parameters(text: str, entry: str) -> list[str]:
    """Names of a kernel function's parameters; none where the file does not define it by ``def``."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == entry:
            return [one.arg for one in (*node.args.posonlyargs, *node.args.args)]
    return []
