"""Evaluate on the Neuron backends: compile in the jail, run on leased cores, time while neighboring cores are idle.

A kernel is compiled while the simulator predicts its latency. The kernel is then checked on one leased core. Its NEFF
is loaded once, so the checks of the search gate and of the strict gate follow each other. Then the kernel is timed. At
the strict gate it is timed interleaved with its competitors, and checked once more on a fresh data set.

If a core is lost while a kernel runs, a canary (a known-good kernel) is run on that core, and the kernel is run again
on another core. The kernel is at fault if canaries fail on two cores after the kernel ran there, or if three cores are
lost while the kernel runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from pathlib import Path

from acceld.config import DevicesConfig, EvaluateConfig
from acceld.devices.neuron.bench import Bench
from acceld.devices.neuron.builds import Builds
from acceld.devices.neuron.case import NeuronCase
from acceld.devices.neuron.checking import Checker
from acceld.devices.neuron.compile_jail import JailedExchange
from acceld.devices.neuron.learned import isolation_of
from acceld.devices.neuron.machine import Found, Machine, find_machine
from acceld.devices.neuron.runtime.cores import Core
from acceld.devices.neuron.runtime.timing import Clock
from acceld.devices.neuron.screen import Screen
from acceld.devices.neuron.stopwatch import Stopwatch
from acceld.errors import DeviceError, UsageError
from acceld.evaluate.case import Failed, RecentlyUsed
from acceld.evaluate.evaluator import Ended, OrderedEvaluator, Started, opened
from acceld.evaluate.interface import EvaluationRequest, Evaluator
from acceld.evaluate.queue import slots_of
from acceld.evaluate.sandbox.jail import Level
from acceld.evaluate.sandbox.ladder import SandboxReport
from acceld.evaluate.simulated.children import Children
from acceld.model import Evaluation, Gate, Kernel, Status
from acceld.roofline import floor_us
from acceld.targets import SIMULATOR, TARGETS
from acceld.workloads import Workload

BUILD_S = 600.0
"""Least deadline of a compilation in seconds, because deadlines that suit the simulator are far too short for a
compiler.
"""
_REMEMBERED = 4096

Notice = Callable[[int, str, str], Awaitable[object]]
"""Function that stores a message on a run: the run's id, ``info`` or ``warning``, and the text."""
DeviceState = Callable[[str, str, str], Awaitable[object]]
"""Function that reports a core's new state: its name, ``sick`` (out of service) or ``idle`` (back in service),
the reason.
"""


CHANCE = frozenset(
    "undefined_memory undefined_read undefined_output overlap repeated_destination race overlapping_lives".split()
)
"""The simulator's rules about results that may differ between two executions on a chip."""


class NeuronEvaluator(OrderedEvaluator[NeuronCase]):
    """Evaluate candidates on the Trainium chips of this machine."""

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
        """Prepare the evaluator. ``simulator`` returns the evaluator that predicts latencies, and is called
        when it is needed.
        """
        super().__init__(config, state_folder, workload_folders=workload_folders, on_start=on_start)
        self.backend = backend
        self._devices = devices
        self._simulator = simulator
        self._on_notice = on_notice
        self._on_device = on_device
        self._found: Found | None = None
        self._children: Children | None = None
        self._exchange: JailedExchange | None = None
        self._machine: Machine | None = None
        self._work: tuple[Builds, Checker, Stopwatch] | None = None
        self._announced: RecentlyUsed[int, bool] = RecentlyUsed(_REMEMBERED)
        self._measured: RecentlyUsed[tuple[str, str, str], float] = RecentlyUsed(_REMEMBERED)
        self._screen = Screen()

    async def find_slots(self) -> int:
        """Find the toolchain and the cores, and return the number of evaluations that may run at the same time.

        Raise DeviceError if the toolchain or the cores are missing.
        """
        devices = self._devices
        self._found = await find_machine(
            self.backend,
            compile_python=devices.compile_python,
            runner_python=devices.runner_python,
            wanted=devices.cores,
        )
        return slots_of(self._config) + len(self._found.cores)

    async def open(self, report: SandboxReport) -> None:
        """Start the child processes, and compile, run and time a known-good kernel.

        Raise DeviceError if one of these steps fails, or if the machine has no sandbox and
        ``allow_unsandboxed`` is not set.
        """
        config, found = self._config, opened(self._found)
        if report.level < Level.L1 and not config.allow_unsandboxed:
            raise DeviceError(
                "no sandbox works here, so nothing is compiled",
                hint="`acceld doctor` shows why. To compile nevertheless, set allow_unsandboxed in [evaluate].",
            )
        self._children = Children(config, self._folder, report.level, report.cgroup_folder, floors=self._floors)
        await self._children.start()
        memory_bytes = int(config.memory_gib * 2**30)
        self._exchange = JailedExchange(report.level, report.cgroup_folder, memory_bytes=memory_bytes)
        await self._exchange.start()
        self._machine = machine = Machine(
            self.backend,
            found,
            self._exchange.exchanges(),
            state_folder=self._folder,
            compile_jail=self._devices.compile_jail if report.level >= Level.L1 else "off",
            isolation=await asyncio.to_thread(isolation_of, self._folder),
            build_s=max(config.build_s, BUILD_S),
            on_change=self._core_changed,
        )
        await machine.prove()
        await machine.monitor.start()
        bench, builds = Bench(machine, config), Builds(machine, slots_of(config))
        checker = Checker(self.backend, bench, builds, self._children, self._floors)
        self._work = (builds, checker, Stopwatch(bench, builds, self._children, checker))

    async def close(self) -> None:
        """End the monitor and the child processes."""
        if self._machine is not None:
            await self._machine.monitor.stop()
        if self._children is not None:
            await self._children.stop()
        if self._exchange is not None:
            await self._exchange.stop()
        self._children, self._exchange, self._machine, self._work = None, None, None, None

    def statistics(self) -> dict[str, object]:
        """Return figures for people: the queue, the cores, compilations, the sandbox's level and neuron-monitor's
        report.
        """
        machine = self._machine
        return {
            **super().statistics(),
            "compiled": machine.compiler.compiled if machine else 0,
            "compile_jail": machine.compiler.jail.value if machine else "",
            "compile_route": machine.compiler.route if machine else "",
            "devices": machine.leases.statistics() if machine else {},
            "clock": machine.clock.plain() if machine else {},
            "monitor": machine.monitor.last.plain() if machine and machine.monitor.last else {},
            "screen": self._screen.plain(),
        }

    async def _core_changed(self, core: Core, in_service: bool, reason: str) -> None:
        if self._on_device is not None:
            await self._on_device(f"{self.backend}:core{core.id}", "idle" if in_service else "sick", reason)

    async def case(self, request: EvaluationRequest, loaded: Workload, slot: int) -> NeuronCase:
        """Return the record of a new evaluation. Raise UsageError for a chip that this machine does not have."""
        machine = opened(self._machine)
        if request.chip != machine.chip:
            if machine.certain:
                raise UsageError(
                    f"this machine's chip is {machine.chip}, and the kernel was to run on {request.chip}",
                    hint=f"Use --chip {machine.chip}.",
                )
            # the firmware does not name the chip, so the first request's chip is used for as long as the backend runs
            machine.chip, machine.certain = request.chip, True
        if request.run and request.run not in self._announced:
            self._announced[request.run] = True
            await self._announce(request, loaded, machine.clock)
        return NeuronCase(request, loaded, seeds=self._seeds.of(request.run, loaded))

    async def _announce(self, request: EvaluationRequest, loaded: Workload, clock: Clock) -> None:
        """Store on the run, before its first measurement, a message with the timing method and the least difference
        that the method can show.
        """
        if self._on_notice is None:
            return
        await self._on_notice(request.run, "info", f"{clock.text}; {self._holds()}")
        predicted = await self._predicted(request, request.kernel)
        latency_us, least_us = predicted.latency_us if predicted else None, floor_us(loaded, request.chip) or 0.0
        if latency_us is None or not clock.least_win_us:
            return
        if latency_us - least_us < clock.least_win_us:
            await self._on_notice(
                request.run,
                "warning",
                f"a win in this run can not be measured: its first kernel takes about {latency_us:.4g} µs by the simulator, "
                f"no kernel can take less than {least_us:.4g} µs, and {clock.method} only shows differences of at least "
                f"{clock.least_win_us:.4g} µs. Use larger shapes, or nrtpy (SDK 2.32 and newer), which reads the device's clock",
            )

    def _holds(self) -> str:
        machine = opened(self._machine)
        jail = {"strict": "the strict jail", "wide": "the wide jail"}.get(machine.compiler.jail, "no jail")
        return f"compiled by {machine.compiler.route} in {jail}"

    async def build(self, case: NeuronCase) -> Ended | None:
        """Compile the kernel while the simulator predicts its latency.

        Return the result if the evaluation ends here, else None. It ends here if the kernel does not compile, if the
        simulator rejects it, or if screening decides not to measure it.
        """
        builds, _, _ = opened(self._work)
        request, kernel = case.request, case.request.kernel
        predicting = asyncio.create_task(self._predicted(request, kernel))
        try:
            if request.screen and await self._screened(case, await predicting):
                return Status.UNTESTED
            build = await builds.build(case, kernel)
            case.simulated = predicted = await predicting
        finally:
            predicting.cancel()
            await asyncio.gather(predicting, return_exceptions=True)
        if predicted is not None and predicted.status is Status.REJECTED and predicted.failure is not None:
            return Failed(Status.REJECTED, predicted.failure)
        if isinstance(build, Failed):
            return build
        case.compiled, case.program_sha256 = build, build[1].sha256
        return None

    async def measure(self, case: NeuronCase) -> Failed | None:
        """Check the kernel on data, then time it. Return the failure; None if the kernel passes.

        A wrong kernel is not timed, because a timing keeps a whole group of cores idle.
        """
        _, checker, stopwatch = opened(self._work)
        if case.request.gate is not Gate.TIMING and (failed := await checker.pass_gates(case)) is not None:
            return failed
        timed = await stopwatch.time(case)
        if isinstance(timed, Failed):
            return timed
        case.profile = timed
        return None

    async def check(self, case: NeuronCase, gate: Gate) -> Failed | None:
        """Make the checks of the strict gate that come after the timing. Return the failure; None if the kernel passes.

        The workload has to tell right outputs from wrong ones, and no result may be left to chance. The data
        sets of the gate ran before the timing. At the search gate there is nothing to check, and None is
        returned.
        """
        if gate is Gate.SEARCH:
            return None
        weak = await self.weakness(case, opened(self._children).admit)
        if weak is not None:
            return Failed(Status.SUSPECT, weak, case.correctness(gate))
        return await self._left_to_chance(case)

    async def _left_to_chance(self, case: NeuronCase) -> Failed | None:
        """Return a failure if a result depends on undefined memory, or on the order of concurrent accesses.

        The simulator finds such results on one data set; on a chip the outputs may be right by chance. Return None if
        there is no such result, or if the simulator can not run the kernel.
        """
        request = case.request
        if request.chip not in TARGETS[SIMULATOR].chips.get(request.kernel.api, ()):
            return None
        simulator = await self._simulator()
        asked = replace(request, backend=SIMULATOR, gate=Gate.SEARCH, candidate=0, against=(), screen=False)
        found = await simulator.evaluate(replace(asked, useful_below_us=None))
        if found.failure is None or found.failure.rule not in CHANCE:
            return None
        return Failed(found.status, found.failure, case.correctness(Gate.STRICT))

    async def learn(self, case: NeuronCase, evaluation: Evaluation) -> None:
        """Store the latency of a kernel that passed, so that its children can be compared with it.

        If the kernel was measured although it was predicted to be slow, also record whether the prediction was wrong.
        """
        if evaluation.status is not Status.PASSED or evaluation.latency_us is None:
            return
        if case.request.screen:
            await self._screen_learns(case, evaluation.latency_us)
        self._measured[self._name(case, case.request.kernel)] = evaluation.latency_us

    async def _predicted(self, request: EvaluationRequest, kernel: Kernel) -> Evaluation | None:
        """Return the simulator's evaluation without data; None if the simulator does not support this API on
        this chip.
        """
        if request.chip not in TARGETS[SIMULATOR].chips.get(kernel.api, ()):
            return None
        simulator = await self._simulator()
        asked = replace(request, kernel=kernel, backend=SIMULATOR, gate=Gate.TIMING, candidate=0, against=())
        return await simulator.evaluate(replace(asked, screen=False, useful_below_us=None))

    async def _screened(self, case: NeuronCase, predicted: Evaluation | None) -> bool:
        """Tell whether the candidate is left unmeasured, because the simulator finds it clearly slower than its parent."""
        parents = case.request.against
        if not parents or predicted is None or predicted.profile is None or not self._screen.on:
            return False
        parent = await self._predicted(case.request, parents[0])
        choice = self._screen.choose(case.request, predicted.profile, parent.profile if parent else None)
        if choice is None:
            return False
        case.details["screen"] = choice.plain()
        if choice.measured:
            return False
        case.simulated = predicted
        case.profile = replace(
            predicted.profile,
            latency_us=None,
            notes=("not measured: the simulator finds the candidate slower than its parent",),
            details={**case.details, "simulated_latency_us": predicted.profile.latency_us},
        )
        return True

    async def _screen_learns(self, case: NeuronCase, latency_us: float) -> None:
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

    def _band_percent(self, case: NeuronCase) -> float:
        assert case.profile is not None and case.profile.tie_percent is not None
        return case.profile.tie_percent

    def _name(self, case: NeuronCase, kernel: Kernel) -> tuple[str, str, str]:
        return (case.workload.hash, case.request.chip, kernel.sha256)
