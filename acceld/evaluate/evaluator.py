"""Define the order of evaluation, which is the same on every device. A device implements the single stages.

The stages are:

1. Apply the policy to the source.
2. Build the program from shapes, in a jail.
3. Look up the program's hash, and reuse an earlier result of the same program.
4. Measure the latency.
5. Compare the latency with the physical floor.
6. Decide whether the kernel must run on data.
7. Run the search gate, then the strict gate.

The first failure ends the evaluation.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from acceld.config import EvaluateConfig
from acceld.errors import DeviceError, UsageError
from acceld.evaluate import policy
from acceld.evaluate.case import Case, Failed
from acceld.evaluate.correctness.admission import Admissions, Admit
from acceld.evaluate.correctness.gates import RunSeeds
from acceld.evaluate.correctness.noise import Floors
from acceld.evaluate.interface import EvaluationRequest
from acceld.evaluate.queue import SlotQueue, slots_of
from acceld.evaluate.sandbox.jail import Level
from acceld.evaluate.sandbox.ladder import SandboxReport, probe_level
from acceld.evaluate.shapes import over_shapes
from acceld.model import Correctness, Evaluation, Failure, Gate, Kernel, Status
from acceld.roofline import floor_us, percent_of_attainable, percent_of_peak
from acceld.workloads import Arguments, Workload, load_workload, workload

C = TypeVar("C", bound=Case)
T = TypeVar("T")
Ended = Failed | Status
"""The end of an evaluation before its last stage: a failure, or a status such as ``untested`` that is not a failure."""
Started = Callable[[EvaluationRequest, str], Awaitable[None]]
"""Function that is called when an evaluation gets a slot, with the evaluation's request and the slot's name."""


class OrderedEvaluator(ABC, Generic[C]):
    """Evaluate candidates one stage after another. Implements :class:`acceld.evaluate.interface.Evaluator`.

    A device implements ``open`` and ``close``, ``case``, ``build``, ``measure`` and ``check``. The other hooks
    have defaults. ``build``, ``measure``, ``suspicion`` and ``check`` return None to continue, or the failure
    that ends the evaluation.
    """

    backend: str

    def __init__(
        self,
        config: EvaluateConfig,
        state_folder: Path,
        *,
        workload_folders: Iterable[Path | str] = (),
        highest: Level = Level.L4,
        on_start: Started | None = None,
    ) -> None:
        self._config = config
        self._folder = state_folder
        self._workload_folders = tuple(workload_folders)
        self._highest = highest
        self._on_start = on_start
        self._floors = Floors(state_folder / "floors")
        self._admissions = Admissions(state_folder / "floors")
        self._seeds = RunSeeds()
        self._queue = SlotQueue(slots_of(config), config.queue_size)
        self._running: set[asyncio.Task[Any]] = set()
        self.report: SandboxReport | None = None

    # Starting and stopping the evaluator.

    async def start(self) -> None:
        """Find the devices and the sandbox level, and start the child processes.

        Raise DeviceError if something is missing, or if the sandbox level is below the configured level.
        """
        slots = await self.find_slots()
        self._queue = SlotQueue(slots, self._config.queue_size)
        try:
            self.report = report = await self.find_level(self._highest)
            self._demand(report)
            await self.open(report)
        except BaseException:
            await self.stop(0.0)
            raise

    def _demand(self, report: SandboxReport) -> None:
        """Raise DeviceError if the sandbox level is below the level that ``evaluate.sandbox`` demands."""
        wanted = self._config.sandbox
        if wanted != "auto" and report.level < Level[wanted]:
            reasons = "; ".join(f"{level.name}: {why}" for level, why in report.refused)
            raise DeviceError(
                f"the sandbox reaches level {report.level.name} here, but [evaluate] sandbox demands {wanted}",
                hint=f"{reasons}. `acceld doctor` shows what is missing.",
            )

    async def stop(self, grace_s: float) -> None:
        """Refuse new evaluations and give running evaluations ``grace_s`` seconds to end. Then end every child process."""
        self._queue.close()
        running = [task for task in self._running if task is not asyncio.current_task()]
        if running:
            _, late = await asyncio.wait(running, timeout=grace_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self.close()

    def statistics(self) -> dict[str, object]:
        """Return figures for the status page: queue length, age of the oldest request, slots in use, sandbox
        level.
        """
        return {**self._queue.statistics(), "sandbox_level": self.report.level.name if self.report else ""}

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """Wait for a slot, evaluate a candidate and return the result.

        Raise WorkloadError if the workload can not be used. Raise UsageError if this device can not time a
        kernel without a workload. Raise DeviceError if something is missing here or the sandbox is too weak
        for untrusted code. Raise SandboxError if the sandbox itself failed.
        """
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            async with self._queue.place(request.priority) as slot:
                if self._on_start is not None:
                    await self._on_start(request, f"{self.backend}:{self.slot_name(slot)}")
                if request.arguments is not None:
                    return await self.time_alone(request, request.arguments)
                loaded = await asyncio.to_thread(self._load, request)
                if loaded.shapes:
                    return await over_shapes(request, loaded, partial(self.run_stages, slot=slot))
                return await self.run_stages(request, loaded, slot)
        finally:
            self._running.discard(task)

    def _load(self, request: EvaluationRequest) -> Workload:
        """Return the workload of a request, at the request's shape if it names one."""
        folder = request.workload_folder
        if request.shape:
            return load_workload(
                folder or workload(request.workload, self._workload_folders).folder, dict(request.shape)
            )
        return load_workload(folder) if folder else workload(request.workload, self._workload_folders)

    # The steps of an evaluation, in order.

    async def run_stages(self, request: EvaluationRequest, loaded: Workload, slot: int) -> Evaluation:
        """Evaluate a candidate at one shape, stage by stage up to the first failure, and return the result."""
        case = await self.case(request, loaded, slot)
        try:
            ended: Ended | None = await self._refuse(request.kernel) or await self.build(case)
            if ended is not None:
                return self._result(case, ended)
            known = self.recall(case)
            if known is not None:
                return known
            ended = await self.measure(case) or self.suspicion(case)
            if ended is None and self.is_enough(case):
                return self._result(case, Status.UNTESTED)
            for gate in (Gate.SEARCH, Gate.STRICT):
                if ended is None and (gate is Gate.SEARCH or request.gate is Gate.STRICT):
                    ended = await self.check(case, gate)
            evaluation = self._result(case, ended or Status.PASSED)
            await self.learn(case, evaluation)
            return evaluation
        finally:
            await self.release(case)

    async def _refuse(self, kernel: Kernel) -> Failed | None:
        """Return a failure if the kernel's code must not run; None if the code may run.

        Raise DeviceError if the code is untrusted, no sandbox works, and ``allow_unsandboxed`` is off.
        """
        assert self.report is not None
        if kernel.trusted:
            return None
        if not (self.report.untrusted_allowed or self._config.allow_unsandboxed):
            raise DeviceError(
                "no sandbox works here, so untrusted code is not run",
                hint="`acceld doctor` shows why. To run such code nevertheless, set allow_unsandboxed in [evaluate].",
            )
        broken = await asyncio.to_thread(self.policy, kernel)
        if broken is None:
            return None
        return Failed(Status.COMPILE_ERROR if broken.rule == "syntax" else Status.REJECTED, broken)

    def _result(self, case: C, ended: Ended) -> Evaluation:
        """Return the Evaluation of a case that ended with a failure or with a status."""
        failed = ended if isinstance(ended, Failed) else None
        correctness = self.correctness(case) if ended is Status.PASSED else failed.correctness if failed else None
        latency_us = case.profile.latency_us if case.profile else None
        peak, attainable = self.percents(case, latency_us) if latency_us and case.loaded else (None, None)
        assert self.report is not None
        return Evaluation(
            status=ended.status if isinstance(ended, Failed) else ended,
            source_sha256=case.request.kernel.sha256,
            program_sha256=case.program_sha256,
            failure=failed.failure if failed else None,
            correctness=correctness,
            profile=case.profile,
            percent_of_peak=peak,
            percent_of_attainable=attainable,
            sandbox_level=self.report.level.name,
            seconds=dict(case.seconds),
            log="\n".join(filter(None, (case.log, failed.log if failed else ""))),
            reused=case.reused,
        )

    async def weakness(self, case: Case, admit: Admit) -> Failure | None:
        """Return the reason why the workload's checks are too weak to prove a win.

        None means that the checks suffice, or that the request needs no proof. ``admit`` examines a workload
        that was not examined before.
        """
        return await self._admissions.refuse(case.workload, admit) if case.request.needs_proof else None

    # Methods that a backend may override.

    async def find_slots(self) -> int:
        """Find the devices, and return how many evaluations may run at the same time.

        Raise DeviceError if there is no device.
        """
        return slots_of(self._config)

    async def find_level(self, highest: Level) -> SandboxReport:
        """Return the strictest sandbox level that works here, at most ``highest``, and why each stricter level
        does not work.
        """
        return await probe_level(highest)

    @abstractmethod
    async def open(self, report: SandboxReport) -> None:
        """Start the child processes and test the devices."""

    @abstractmethod
    async def close(self) -> None:
        """Stop what ``open`` started, even if ``open`` failed half way."""

    def slot_name(self, slot: int) -> str:
        """Return the name of a slot to show to people."""
        return str(slot)

    async def time_alone(self, request: EvaluationRequest, arguments: Arguments) -> Evaluation:
        """Time a kernel that has no workload, and return the result.

        Raise UsageError on a device that needs a workload, which is the default.
        """
        raise UsageError(
            f"backend {self.backend} can not time a kernel without a workload",
            hint="Make a workload for the kernel with `acceld init`, or time it with --backend simulator.",
        )

    @abstractmethod
    async def case(self, request: EvaluationRequest, loaded: Workload, slot: int) -> C:
        """Return the state of a new evaluation. Raise UsageError or DeviceError if this device can not serve
        the request.
        """

    def policy(self, kernel: Kernel) -> Failure | None:
        """Return a failure for the first forbidden construct in the source; None if the source has none."""
        return policy.check(kernel.text, kernel.filename)

    @abstractmethod
    async def build(self, case: C) -> Ended | None:
        """Build the program from shapes, without data, and store its hash in the case.

        Returns a failure or a status to end the evaluation, None to continue.
        """

    def recall(self, case: C) -> Evaluation | None:
        """Return an earlier evaluation of the same program, if it answers the request; else None."""
        return None

    @abstractmethod
    async def measure(self, case: C) -> Failed | None:
        """Measure the latency and store the profile in the case. Return a failure, or None to continue."""

    def suspicion(self, case: C) -> Failed | None:
        """Return a failure (status ``suspect``) if the latency can not be true; else None.

        A latency can not be true if it is below the physical floor: the least time that the workload's declared work
        takes. Evaluators of devices may add reasons.
        """
        latency_us = case.profile.latency_us if case.profile else None
        least_us = floor_us(case.workload, case.request.chip)
        if latency_us is None or least_us is None:
            return None
        least_us /= case.request.kernel.lnc  # the rates are those of one core
        if latency_us >= least_us:
            return None
        return Failed(
            Status.SUSPECT,
            below_floor(latency_us, least_us, "the kernel's transfers, products and element-wise work take"),
        )

    def is_enough(self, case: C) -> bool:
        """Tell whether the evaluation may end without running the kernel on data.

        By default, return True if the request asks for the latency only. A device may add kernels that are too slow
        to be useful.
        """
        return case.request.gate is Gate.TIMING

    @abstractmethod
    async def check(self, case: C, gate: Gate) -> Failed | None:
        """Run the program on the data sets of one gate. Return the first failure; None if the program passes."""

    def correctness(self, case: C) -> Correctness:
        """Return the record of the checks, for a kernel that passed all of them."""
        return case.correctness(case.request.gate)

    def percents(self, case: C, latency_us: float) -> tuple[float | None, float | None]:
        """Return two percentages of the latency: the workload's least time at peak rates, and its least time at rates
        that kernels attain (:mod:`acceld.roofline`).

        Both are for the cores that run the kernel. A percentage that is not known is None.
        """
        loaded, chip = case.workload, case.request.chip
        core_us = latency_us * case.request.kernel.lnc  # the peaks are those of one core
        return percent_of_peak(loaded, core_us, chip), percent_of_attainable(loaded, core_us, chip)

    async def learn(self, case: C, evaluation: Evaluation) -> None:
        """Store the result of a measured program for later evaluations. By default nothing is stored."""
        return

    async def release(self, case: C) -> None:
        """Free the resources of the case. By default a case has no resources."""
        return


def below_floor(latency_us: float, least_us: float, work: str) -> Failure:
    """Return the failure ``below_floor``, for a latency that is less than the time ``least_us`` that ``work``
    takes.
    """
    message = f"{latency_us:.4g} µs is less than the {least_us:.4g} µs that {work} at least"
    hint = "Either the kernel leaves out work, or the workload declares too much. Check the latency by another method."
    return Failure("below_floor", message, hint=hint)


def opened(part: T | None) -> T:
    """Return ``part``, which ``open`` made. Raise DeviceError if ``part`` is None, because the evaluator was not
    started.
    """
    if part is None:
        raise DeviceError("the evaluator is not running", hint="call start() first")
    return part
