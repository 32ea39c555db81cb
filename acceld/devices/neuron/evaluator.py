"""The evaluator of the Neuron backends: the order of judging, with a chip at its end.

policy and simulator -> compile in the jail, from shapes -> hash -> search gate on one leased core (one secret data set of
the run) -> strict gate there (fresh seeds, every distribution) -> timing in an isolation group, in turn with the kernels
it is held against -> a fresh data set once more.

A kernel that fails is a value. A core that is lost under a kernel gets a canary and the kernel another core; what no
known-good kernel survives is the device's fault, what only this kernel does not survive is the kernel's.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from acceld.config import DevicesConfig, EvaluateConfig
from acceld.devices.neuron.bench import Bench
from acceld.devices.neuron.builds import Builds
from acceld.devices.neuron.calibration import isolation_of
from acceld.devices.neuron.case import Case
from acceld.devices.neuron.checking import Checker
from acceld.devices.neuron.compile_jail import JailedExchange
from acceld.devices.neuron.machine import Machine, find_machine
from acceld.devices.neuron.runtime.compiler import unjailed
from acceld.devices.neuron.runtime.cores import Core
from acceld.devices.neuron.screen import Screen
from acceld.devices.neuron.stopwatch import Stopwatch
from acceld.devices.neuron.verdicts import Verdict
from acceld.errors import DeviceError, UsageError
from acceld.evaluate import policy
from acceld.evaluate.correctness.admission import Admissions
from acceld.evaluate.correctness.gates import RunSeeds
from acceld.evaluate.correctness.noise import Floors
from acceld.evaluate.interface import EvaluationRequest, Evaluator
from acceld.evaluate.queue import SlotQueue, slots_of
from acceld.evaluate.sandbox.jail import Level
from acceld.evaluate.sandbox.ladder import SandboxReport, probe_level
from acceld.evaluate.simulated.children import Children
from acceld.model import Correctness, Evaluation, Failure, Gate, Kernel, Profile, Status
from acceld.roofline import floor_us, percent_of_attainable, percent_of_peak
from acceld.targets import SIMULATOR, TARGETS
from acceld.workloads import Workload, load_workload, workload

BUILD_S = 600.0
"""Least deadline of a compilation: the simulator's own is far too short for a compiler."""
_REMEMBERED = 4096

Started = Callable[[EvaluationRequest, str], Awaitable[None]]
Notice = Callable[[int, str, str], Awaitable[object]]
"""Told of what people should know of a run: its id, info or warning, and the text."""
DeviceState = Callable[[str, str, str], Awaitable[object]]
"""Told of a core that goes out of service (``sick``) or comes back (``idle``): its name, its state and the reason."""


class NeuronJudge:
    """Judges candidates on Trainium. Implements :class:`acceld.evaluate.interface.Evaluator`."""

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
        on_device: DeviceState | None = None,
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
        self._on_device = on_device
        self._floors = Floors(state_folder / "floors")
        self._admissions = Admissions(state_folder / "floors")
        self._children: Children | None = None
        self._exchange: JailedExchange | None = None
        self._machine: Machine | None = None
        self._work: tuple[Builds, Checker, Stopwatch] | None = None
        self._queue = SlotQueue(slots_of(config), config.queue_size)
        self._running: set[asyncio.Task[Any]] = set()
        self._seeds = RunSeeds()
        self._measured: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._screen = Screen()
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
            self._machine = machine = Machine(
                self.backend,
                found,
                self._exchange if report.level >= Level.L1 else unjailed,
                folder=self._folder / "neuron",
                isolation=await asyncio.to_thread(isolation_of, self._folder),
                build_s=max(config.build_s, BUILD_S),
                told=self._core_changed,
            )
            self._queue = SlotQueue(slots_of(config) + len(found.cores), config.queue_size)
            await machine.prove()
            await machine.monitor.start()
            bench, builds = Bench(machine, self._children, config), Builds(machine, slots_of(config))
            checker = Checker(self.backend, bench, builds, self._floors)
            self._work = (builds, checker, Stopwatch(bench, builds, checker))
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
        if self._machine is not None:
            await self._machine.monitor.stop()
        if self._children is not None:
            await self._children.stop()
        if self._exchange is not None:
            await self._exchange.stop()
        self._children, self._exchange, self._machine, self._work = None, None, None, None

    def statistics(self) -> dict[str, object]:
        """The queue, the cores (state, who waits, utilization of all and of each), compilations, sandbox level, and what neuron-monitor says."""
        machine = self._machine
        return {
            **self._queue.statistics(),
            "sandbox_level": self.report.level.name if self.report else "",
            "compiled": machine.compiler.compiled if machine else 0,
            "devices": machine.leases.statistics() if machine else {},
            "monitor": machine.monitor.last.plain() if machine and machine.monitor.last else {},
            "screen": self._screen.plain(),
        }

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """Wait for a place, judge, and return the verdict; errors as :class:`~acceld.evaluate.interface.Evaluator` says."""
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            async with self._queue.place(request.priority) as slot:
                if self._on_start is not None:
                    await self._on_start(request, f"{self.backend}:{slot}")
                self._check_chip(request)
                loaded = await asyncio.to_thread(self._load, request)
                return await self._judge(Case(request, loaded, self._seeds.of(request.run, loaded)))
        finally:
            self._running.discard(task)
            if self._children is not None:
                await self._children.trim(self._config.cache_bytes)

    async def _core_changed(self, core: Core, in_service: bool, reason: str) -> None:
        if self._on_device is not None:
            await self._on_device(f"{self.backend}:core{core.id}", "idle" if in_service else "sick", reason)

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
        # The firmware does not tell: the first who asks decides for as long as the backend runs.
        machine.chip, machine.certain = request.chip, True

    async def _judge(self, case: Case) -> Evaluation:
        request, kernel = case.request, case.request.kernel
        if not kernel.trusted:
            broken = await asyncio.to_thread(policy.check, kernel.text, kernel.filename)
            if broken is not None:
                status = Status.COMPILE_ERROR if broken.rule == "syntax" else Status.REJECTED
                return self._result(case, status, broken)
        builds, checker, stopwatch = self._needed()
        predicting = asyncio.create_task(self._predict(case, kernel))
        try:
            if request.screen and (dropped := await self._screened(case, await predicting)) is not None:
                return dropped
            build = await builds.build(case, kernel)
            case.simulated = await predicting
        finally:
            predicting.cancel()
            await asyncio.gather(predicting, return_exceptions=True)
        predicted = case.simulated
        if predicted is not None and predicted.status is Status.REJECTED and predicted.failure is not None:
            return self._result(case, Status.REJECTED, predicted.failure)
        if isinstance(build, Verdict):
            return self._result(case, build.status, build.failure)
        case.program_sha256 = build[1].sha256
        if request.gate is not Gate.TIMING and (bad := await checker.pass_gates(case, build)) is not None:
            return self._result(case, *bad)
        timed = await stopwatch.time(case, build)
        if isinstance(timed, Verdict):
            return self._result(case, timed.status, timed.failure)
        if isinstance(timed, tuple):
            return self._result(case, *timed)
        return await self._timed(case, timed)

    async def _timed(self, case: Case, profile: Profile) -> Evaluation:
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
        if request.gate is Gate.STRICT and request.needs_proof and self._children is not None:
            weak = await self._admissions.refuse(case.workload, self._children.admit)
            if weak is not None:
                return self._result(case, Status.SUSPECT, weak, case.correctness())
        if request.screen:
            await self._screen_learns(case, latency_us)
        self._remember(case, latency_us)
        return self._result(case, Status.PASSED, None, case.correctness())

    # What the simulator says of a kernel.

    async def _predict(self, case: Case, kernel: Kernel) -> Evaluation | None:
        """The simulator's evaluation without data; None where it does not know the chip."""
        request = case.request
        if request.chip not in TARGETS[SIMULATOR].chips.get(kernel.api, ()):
            return None
        simulator = await self._simulator()
        asked = replace(request, kernel=kernel, backend=SIMULATOR, gate=Gate.TIMING, candidate=0, against=())
        return await simulator.evaluate(replace(asked, screen=False, useful_below_us=None))

    async def _screened(self, case: Case, predicted: Evaluation | None) -> Evaluation | None:
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

    async def _screen_learns(self, case: Case, latency_us: float) -> None:
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

    def _band_percent(self, case: Case) -> float:
        assert case.profile is not None
        return float(case.profile.details["prediction"]["paired_band"]["mixed"])

    # Records.

    def _result(
        self, case: Case, status: Status, failure: Failure | None = None, correctness: Correctness | None = None
    ) -> Evaluation:
        latency, chip = case.profile.latency_us if case.profile else None, case.request.chip
        assert self.report is not None
        return Evaluation(
            status=status,
            source_sha256=case.request.kernel.sha256,
            program_sha256=case.program_sha256,
            failure=failure,
            correctness=correctness,
            profile=case.profile,
            percent_of_peak=percent_of_peak(case.workload, latency, chip) if latency else None,
            percent_of_attainable=percent_of_attainable(case.workload, latency, chip) if latency else None,
            sandbox_level=self.report.level.name,
            seconds=dict(case.seconds),
        )

    def _name(self, case: Case, kernel: Kernel) -> tuple[str, str, str]:
        return (case.workload.hash, case.request.chip, kernel.sha256)

    def _remember(self, case: Case, latency_us: float) -> None:
        self._measured[self._name(case, case.request.kernel)] = latency_us
        while len(self._measured) > _REMEMBERED:
            self._measured.popitem(last=False)

    def _need(self) -> Machine:
        if self._machine is None:
            raise DeviceError("the evaluator is not running", hint="start() it first")
        return self._machine

    def _needed(self) -> tuple[Builds, Checker, Stopwatch]:
        if self._work is None:
            raise DeviceError("the evaluator is not running", hint="start() it first")
        return self._work
