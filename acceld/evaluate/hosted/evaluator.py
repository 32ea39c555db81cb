"""The judge of hosted kernels: policy, build, time beside a rival, check every timed call, then the strict gate.

policy -> build (jailed, no data) -> same artefact? reuse -> search gate: calls on fresh inputs, timed by turns with the
workload's baseline, every output checked -> strict gate: timed again with fresh inputs by turns with the rival, and in
another process tried on every distribution.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from acceld.config import EvaluateConfig
from acceld.errors import DeviceError, UsageError, WorkloadError
from acceld.evaluate import policy
from acceld.evaluate.baselines import baseline_kernel
from acceld.evaluate.correctness.admission import Admissions
from acceld.evaluate.correctness.checks import placed
from acceld.evaluate.correctness.distributions import OWN, PAPER_SEEDS, strict_variants
from acceld.evaluate.correctness.gates import Trial, fresh_seed, judge_errors
from acceld.evaluate.correctness.metrics import Errors
from acceld.evaluate.correctness.noise import Floors, NumpyFloor
from acceld.evaluate.hosted.arena import Layout, lay_out
from acceld.evaluate.hosted.bench import Artefact, Bench, Checked, Draw, Failed, Terms, Timed
from acceld.evaluate.hosted.driver import Driver, Lease, job_of
from acceld.evaluate.hosted.profiles import Measured, Overhead, measured, overhead_of, suspicion
from acceld.evaluate.hosted.verdicts import Case, grade
from acceld.evaluate.interface import EvaluationRequest, Workplace
from acceld.evaluate.queue import SlotQueue
from acceld.evaluate.sandbox.jail import Level
from acceld.evaluate.sandbox.ladder import SandboxReport, probe_level
from acceld.evaluate.sandbox.process import TRIES, LostError, lost_in
from acceld.model import Correctness, Evaluation, Failure, Gate, Kernel, Profile, Status
from acceld.roofline import least_us
from acceld.workloads import Workload, load_workload, workload

log = logging.getLogger(__name__)

_CALL_S = 10.0
"""Deadline of one call, where the configuration does not say."""
SEARCH_TERMS = Terms(calls=16, least=7, budget_s=1.2, call_s=_CALL_S)
STRICT_TERMS = Terms(calls=24, least=11, budget_s=3.0, call_s=_CALL_S)
_LEAST_CALLS = 3
"""What a session has at least: room for it must be in the deck; enough where a call is a median of several launches."""
_AMPLE_BYTES = 1 << 30
"""Of inputs and outputs: where a device's clock is believed, no more is dealt for more calls than the least."""
_EMPTY_CALLS = 40
_REMEMBERED = 1024


@dataclass(slots=True)
class _Known:
    """What is known of an artefact on one workload."""

    evaluations: dict[Gate, Evaluation] = field(default_factory=dict)


def hosted(workplace: Workplace, driver: Driver) -> HostedJudge:
    """Return the evaluator of kernels that ``driver`` builds and runs on this machine."""
    return HostedJudge(
        workplace.config,
        workplace.state_folder,
        driver,
        workload_folders=workplace.workload_folders,
        highest=Level.L4 if workplace.highest is None else workplace.highest,
        on_start=workplace.on_start,
    )


class HostedJudge:
    """Judges kernels that run with data on this machine. Implements :class:`acceld.evaluate.interface.Evaluator`."""

    def __init__(
        self,
        config: EvaluateConfig,
        state_folder: Path,
        driver: Driver,
        *,
        workload_folders: Iterable[Path | str] = (),
        highest: Level = Level.L4,
        on_start: Callable[[EvaluationRequest, str], Awaitable[None]] | None = None,
    ) -> None:
        """``on_start`` is told of each evaluation that gets a lease, with the lease's name."""
        self._config = config
        self._folder = state_folder
        self._driver = driver
        self._workload_folders = tuple(workload_folders)
        self._highest = highest
        self._on_start = on_start
        self._floors = Floors(state_folder / "floors")
        self._admissions = Admissions(state_folder / "floors")
        self._bench: Bench | None = None
        self._leases: tuple[Lease, ...] = ()
        self._queue = SlotQueue(1, config.queue_size)
        self._running: set[asyncio.Task[Any]] = set()
        self._known: OrderedDict[tuple[str, str, str], _Known] = OrderedDict()
        self._built: OrderedDict[tuple[str, str], Artefact | Failed] = OrderedDict()
        self.report: SandboxReport | None = None

    async def start(self) -> None:
        """Find devices and the sandbox level, learn what this machine can do, start the children.

        DeviceError where the machine lacks something, or the level is below the one the configuration demands.
        """
        await asyncio.to_thread(self._driver.check)
        self._leases = tuple(await asyncio.to_thread(self._driver.leases))
        self._queue = SlotQueue(len(self._leases), self._config.queue_size)
        self.report = await probe_level(self._highest)
        wanted = self._config.sandbox
        if wanted != "auto" and self.report.level < Level[wanted]:
            raise DeviceError(
                f"the sandbox reaches {self.report.level.name}, [evaluate] sandbox demands {wanted}",
                hint="`acceld doctor` shows what is missing.",
            )
        await asyncio.to_thread(self._driver.learn, self._folder)
        self._bench = Bench(
            self._driver,
            self.report.level,
            self.report.cgroup_folder,
            build_s=self._config.build_s,
            memory_bytes=int(self._config.memory_gib * 2**30),
        )
        await self._bench.start()

    async def stop(self, grace_s: float) -> None:
        """Let nothing new begin, give what runs ``grace_s``, then end every child and its tree."""
        self._queue.close()
        running = [task for task in self._running if task is not asyncio.current_task()]
        if running:
            _, late = await asyncio.wait(running, timeout=grace_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if self._bench is not None:
            await self._bench.stop()
            self._bench = None

    def forget(self) -> None:
        """Judge again what was judged before."""
        self._known.clear()

    def statistics(self) -> dict[str, object]:
        """Depth and age of the queue, leases in use, sandbox level."""
        level = self.report.level.name if self.report else ""
        return {**self._queue.statistics(), "sandbox_level": level, "devices": [one.name for one in self._leases]}

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """Wait for a device, judge, and return the verdict.

        WorkloadError for a workload that can not be used, DeviceError where something is missing here or the sandbox
        forbids it, SandboxError where the harness broke.
        """
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            async with self._queue.place(request.priority) as slot:
                lease = self._leases[slot]
                if self._on_start is not None:
                    await self._on_start(request, f"{self._driver.backend}:{lease.name}")
                loaded = await asyncio.to_thread(self._load, request)
                for left in reversed(range(TRIES)):
                    try:
                        return await self._judge(Case(request, loaded, lease))
                    except (LostError, BaseExceptionGroup) as error:
                        if (lost := lost_in(error)) is None:
                            raise
                        if not left:
                            raise lost from error
                        log.warning("%s; the kernel is judged again", lost.message)
                raise AssertionError("the last try returns or raises")
        finally:
            self._running.discard(task)

    def _load(self, request: EvaluationRequest) -> Workload:
        if request.workload_folder:
            return load_workload(request.workload_folder)
        return workload(request.workload, self._workload_folders)

    async def _judge(self, case: Case) -> Evaluation:
        kernel, report = case.request.kernel, self.report
        assert report is not None
        await asyncio.to_thread(self._driver.check, kernel.api)
        if case.workload.reference is None and not self._driver.reference:
            raise WorkloadError(f"workload {case.workload.name} has no reference to hold measured kernels against")
        if not kernel.trusted:
            if not (report.untrusted_allowed or self._config.allow_unsandboxed):
                raise DeviceError(
                    "no sandbox works here, so code that nobody vouches for is not run",
                    hint="`acceld doctor` shows why. To run it all the same, set allow_unsandboxed in [evaluate].",
                )
            broken = await asyncio.to_thread(self._refused, kernel)
            if broken is not None:
                status = Status.COMPILE_ERROR if broken.rule == "syntax" else Status.REJECTED
                return self._result(case, status, broken)
        built = await self._build(kernel, case.workload)
        if isinstance(built, Failed):
            return self._result(case, built.status, built.failure)
        case.artefact = built
        case.seconds["build"] = built.seconds
        strict = case.request.gate is Gate.STRICT
        # Two sources may make one artefact at this shape and differ at a hidden one.
        source = kernel.sha256 if case.workload.hidden else ""
        known = self._remember((case.workload.hash, case.request.chip, built.sha256 + source))
        stored = known.evaluations.get(Gate.STRICT if strict else Gate.SEARCH)
        again = stored is not None and stored.status is Status.PASSED and (strict or _asks_turns(case.request, stored))
        if stored is not None and not again:
            return replace(stored, source_sha256=kernel.sha256, reused=True)
        evaluation = await self._measure(case, strict=strict)
        known.evaluations[Gate.STRICT if strict else Gate.SEARCH] = evaluation
        return evaluation

    def _refused(self, kernel: Kernel) -> Failure | None:
        if kernel.api == "numpy":
            return policy.check(kernel.text, kernel.filename, library=policy.NUMPY_REACH)
        return self._driver.refuse(kernel)

    async def _build(self, kernel: Kernel, loaded: Workload) -> Artefact | Failed:
        settings = dict(await asyncio.to_thread(self._driver.settings, kernel.api))
        job = job_of(kernel, loaded.arguments, loaded.outputs, settings)
        key = (json.dumps(job, sort_keys=True), kernel.sha256)
        if key not in self._built:
            self._built[key] = await self._need().build(job)
            while len(self._built) > _REMEMBERED:
                self._built.popitem(last=False)
        return self._built[key]

    async def _measure(self, case: Case, *, strict: bool) -> Evaluation:
        built = case.artefact
        assert built is not None
        layout = lay_out(built.job["arguments"], built.job["outputs"])
        terms = self._terms(STRICT_TERMS if strict else SEARCH_TERMS, layout)
        rival = await self._rival(case)
        draws = [Draw(OWN, fresh_seed()) for _ in range(terms.calls)]
        overhead = await self._overhead(layout, case.lease)
        conditions = [await asyncio.to_thread(self._driver.condition, case.lease)]
        timed, rivals, checked = await self._session(case, layout, draws, terms, rival[1] if rival else None)
        conditions.append(await asyncio.to_thread(self._driver.condition, case.lease))
        failed = grade(
            case, self._floors, timed, draws, checked, await self._baseline_floors(case, layout, draws, checked)
        )
        if failed is not None:
            return self._result(case, *failed)
        found = measured(timed, rivals, overhead)
        case.profile = self._profile(case, found, built, rival[0] if rival else None, overhead)
        if any(conditions):
            details = {**case.profile.details, "condition": [dict(one) for one in conditions]}
            case.profile = replace(case.profile, details=details)
        suspect = suspicion(found, least_us(case.workload, self._driver.limits(case.request.chip)))
        if suspect is not None:
            return self._result(case, Status.SUSPECT, suspect, case.correctness(Gate.SEARCH))
        if strict:
            failed = await self._try_everything(case, layout)
            if failed is not None:
                return self._result(case, *failed)
            weak = case.request.needs_proof and await self._admissions.refuse(case.workload, self._need().admit)
            if weak:
                return self._result(case, Status.SUSPECT, weak, case.correctness(Gate.STRICT))
        return self._result(case, Status.PASSED, None, case.correctness(Gate.STRICT if strict else Gate.SEARCH))

    async def _session(
        self, case: Case, layout: Layout, draws: Sequence[Draw], terms: Terms, rival: Artefact | None
    ) -> tuple[Timed, Timed | None, list[Checked]]:
        """Deal, time, and check what was written once both workers are dead."""
        bench, loaded, built = self._need(), case.workload, case.artefact
        assert built is not None
        loop = asyncio.get_running_loop()
        began = loop.time()
        deck = await bench.deal(loaded, layout, draws)
        try:
            kept = bench.keep(layout, len(draws))
            try:
                case.seconds["deal"] = case.seconds.get("deal", 0.0) + loop.time() - began
                began = loop.time()
                entrants = [built] if rival is None else [built, rival]
                mutated = _mutated(loaded)
                timed, *others = await bench.time(entrants, layout, deck, kept, case.lease, terms, mutates=mutated)
                case.seconds["time"] = case.seconds.get("time", 0.0) + loop.time() - began
                began = loop.time()
                checked = await self._check(loaded, layout, draws[: timed.calls], bench, kept) if timed.calls else []
                case.seconds["check"] = case.seconds.get("check", 0.0) + loop.time() - began
            finally:
                kept.close()
        finally:
            deck.close()
        return timed, others[0] if others else None, checked

    async def _check(
        self, loaded: Workload, layout: Layout, draws: Sequence[Draw], bench: Bench, kept: Any
    ) -> list[Checked]:
        """As the bench's, with the noise floors that are known, learning those that are not."""
        floors: dict[str, Any] = {}
        for variant in {draw.variant for draw in draws}:
            known = await asyncio.to_thread(self._floors.of_numpy, loaded, variant)
            if known is not None:
                plain = [one.plain() for one in known.floors]
                floors[variant] = {"floors": plain, "refused": known.refused, "seconds": known.seconds}
        before = set(floors)
        checked = await bench.check(loaded, layout, draws, kept, floors)
        for variant, one in floors.items():
            if variant not in before:
                learned = NumpyFloor(tuple(Errors(*f) for f in one["floors"]), one["refused"], one["seconds"])
                await asyncio.to_thread(self._floors.learn_numpy, loaded, variant, learned)
        return checked

    async def _try_everything(self, case: Case, layout: Layout) -> tuple[Status, Failure, Correctness | None] | None:
        """Every distribution, relation and published seed in a process of its own, and one call twice."""
        again = Draw(OWN, fresh_seed())
        others = [Draw(variant, fresh_seed()) for variant in strict_variants(case.workload)]
        others += [Draw(OWN, seed) for seed in PAPER_SEEDS]
        # One process for all of them where they fit; the call that is made twice stays with its first.
        room = self._room(layout)
        parts = [[again, *others[: room - 2], replace(again, again=True)]]
        parts += [others[start : start + room] for start in range(room - 2, len(others), room)]
        failed = None
        for draws in parts:
            failed = failed or await self._tried(case, layout, draws)
        for values in () if failed else case.workload.hidden:
            failed = failed or await self._elsewhere(case, values)
        return failed

    async def _tried(
        self, case: Case, layout: Layout, draws: Sequence[Draw]
    ) -> tuple[Status, Failure, Correctness | None] | None:
        """One session of calls that are only checked; None where all are right."""
        terms = Terms(len(draws), len(draws), self._config.time_s, self._config.check_s or _CALL_S)
        timed, _, checked = await self._session(case, layout, draws, terms, None)
        floors = await self._baseline_floors(case, layout, draws, checked)
        return grade(case, self._floors, timed, draws, checked, floors)

    def _terms(self, wished: Terms, layout: Layout) -> Terms:
        """As many calls as the deck has room for; fewer of large ones where each is a median already."""
        calls, least = min(wished.calls, self._room(layout)), wished.least
        if self._driver.clock == "claimed":
            least = _LEAST_CALLS
            calls = min(calls, max(least, _AMPLE_BYTES // max(1, layout.input_bytes + layout.output_bytes)))
        return Terms(calls, min(least, calls), wished.budget_s, self._config.check_s or _CALL_S)

    def _room(self, layout: Layout) -> int:
        """Calls the deck has room for. UsageError where that is less than a session has."""
        call_bytes = layout.input_bytes + layout.output_bytes
        most = self._driver.deck_bytes // max(1, call_bytes)
        if most < _LEAST_CALLS:
            raise UsageError(
                f"one call of this workload has {call_bytes >> 20} MiB of inputs and outputs; that is too much to time here"
            )
        return most

    async def _elsewhere(
        self, case: Case, values: Mapping[str, int]
    ) -> tuple[Status, Failure, Correctness | None] | None:
        """The same source at a shape it was not told of; None where it is right there too."""
        shaped = await asyncio.to_thread(load_workload, case.workload.folder, values)
        where = ", ".join(f"{name}={size}" for name, size in values.items())
        built = await self._build(case.request.kernel, shaped)
        if isinstance(built, Failed):
            return built.status, placed(built.failure, where), None
        there = replace(case, workload=shaped, artefact=built, checks=[], seconds={})
        layout, draws = lay_out(built.job["arguments"], built.job["outputs"]), [Draw(OWN, fresh_seed())]
        terms = Terms(1, 1, self._config.time_s, self._config.check_s or _CALL_S)
        timed, _, checked = await self._session(there, layout, draws, terms, None)
        floors = await self._baseline_floors(there, layout, draws, checked)
        failed = grade(there, self._floors, timed, draws, checked, floors)
        case.checks += [replace(check, name=f"hidden shape {where}") for check in there.checks]
        return failed and (failed[0], placed(failed[1], where), case.correctness(Gate.STRICT))

    async def _baseline_floors(
        self, case: Case, layout: Layout, draws: Sequence[Draw], checked: Sequence[Checked]
    ) -> dict[str, Errors]:
        """The baseline's own errors on variants where the kernel is beyond numpy's noise, measured the first time."""
        request, loaded = case.request, case.workload
        wanted: dict[str, Draw] = {}
        known: dict[str, Errors] = {}
        for draw, one in zip(draws, checked, strict=False):
            numpy_floor = await asyncio.to_thread(self._floors.of_numpy, loaded, draw.variant)
            if one.refused or numpy_floor is None or draw.seed in PAPER_SEEDS:
                continue
            trial = Trial(draw.variant, draw.seed)
            if judge_errors(loaded, trial, one.errors, numpy_floor.floors, None).check.passed:
                continue
            stored = await asyncio.to_thread(
                self._floors.of_kernel, loaded, request.kernel.api, request.chip, draw.variant
            )
            if stored is not None:
                known[draw.variant] = stored
            elif all(errors.finite for errors in one.errors):
                wanted[draw.variant] = Draw(draw.variant, fresh_seed())
        if not wanted or request.kernel.api not in loaded.baselines:
            return known
        built = await self._build(await asyncio.to_thread(baseline_kernel, loaded, request.kernel.api), loaded)
        if isinstance(built, Failed):
            return known
        other = replace(case, artefact=built, checks=[], seconds={})
        listed = list(wanted.values())
        terms = Terms(len(listed), len(listed), self._config.time_s, self._config.check_s or _CALL_S)
        timed, _, found = await self._session(other, layout, listed, terms, None)
        if timed.failed is not None:
            return known
        for draw, one in zip(listed, found, strict=True):
            floor = await asyncio.to_thread(self._floors.of_numpy, loaded, draw.variant)
            noise = floor.floors if floor else ()
            place = (loaded, request.kernel.api, request.chip, draw.variant)
            worst = await asyncio.to_thread(self._floors.learn_kernel, *place, one.errors, noise)
            if worst is not None:
                known[draw.variant] = worst
        return known

    async def _rival(self, case: Case) -> tuple[Kernel, Artefact] | None:
        """Whom to time by turns with: the parent, else the workload's baseline."""
        api = case.request.kernel.api
        kernel = next((one for one in case.request.against if one.api == api), None)
        if kernel is None and api in case.workload.baselines:
            kernel = await asyncio.to_thread(baseline_kernel, case.workload, api)
        if kernel is None:
            return None
        built = await self._build(kernel, case.workload)
        if isinstance(built, Failed) or case.artefact is None or built.sha256 == case.artefact.sha256:
            return None
        return kernel, built

    async def _overhead(self, layout: Layout, lease: Lease) -> Overhead:
        """Measured anew for each session: it moves with what else the machine does."""
        # A device's clock needs none of it taken off: this only bounds what that clock may say.
        calls = _EMPTY_CALLS if self._driver.clock != "claimed" else min(_EMPTY_CALLS, self._room(layout))
        return overhead_of(await self._need().empty(layout, lease, calls), self._driver.clock)

    def _profile(
        self, case: Case, found: Measured, built: Artefact, rival: Kernel | None, overhead: Overhead
    ) -> Profile:
        details: dict[str, Any] = {
            "clock": found.clock,
            "wall_us": found.wall_us,
            "empty_us": overhead.plain(),
            "device": case.lease.name,
            "calls": len(found.samples_us),
        }
        if found.paired is not None and rival is not None:
            details["paired"] = [found.paired.plain(rival.sha256)]
        return Profile(
            source=found.source,
            chip=case.request.chip,
            api=case.request.kernel.api,
            latency_us=found.latency.middle,
            method=f"doorbell, {found.clock} clock",
            sdk=self._driver.sdk(case.request.kernel.api),
            resolution_us=overhead.resolution_us,
            interval_percent=found.latency.half_percent,
            counters=dict(built.counters),
            notes=tuple(built.log.splitlines()[:40]),
            samples_us=found.samples_us,
            details=details,
        )

    def _result(
        self, case: Case, status: Status, failure: Failure | None = None, correctness: Correctness | None = None
    ) -> Evaluation:
        assert self.report is not None
        latency = case.profile.latency_us if case.profile else None
        best = least_us(case.workload, self._driver.peaks(case.request.chip)) if latency else None
        percent = None if best is None or latency is None else 100 * best / latency
        return Evaluation(
            status=status,
            source_sha256=case.request.kernel.sha256,
            program_sha256=case.artefact.sha256 if case.artefact else "",
            failure=failure,
            correctness=correctness,
            profile=case.profile,
            percent_of_peak=percent,
            percent_of_attainable=percent,
            sandbox_level=self.report.level.name,
            seconds=dict(case.seconds),
            log=case.artefact.log if case.artefact else "",
        )

    def _remember(self, key: tuple[str, str, str]) -> _Known:
        known = self._known.pop(key, None) or _Known()
        self._known[key] = known
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return known

    def _need(self) -> Bench:
        if self._bench is None:
            raise DeviceError("the evaluator is not running", hint="start() it first")
        return self._bench


def _asks_turns(request: EvaluationRequest, stored: Evaluation) -> bool:
    """Whether somebody outside of a run wants turns with a kernel that a stored evaluation did not take them with."""
    if request.run or not request.against or stored.profile is None:
        return False
    return all(pair["against"] != request.against[0].sha256 for pair in stored.profile.details.get("paired", ()))


def _mutated(loaded: Workload) -> tuple[int, ...]:
    """Positions, among the arrays, of arguments that the kernel may change."""
    arrays = [argument.name for argument in loaded.arguments if not argument.is_scalar]
    return tuple(arrays.index(name) for name in loaded.mutates)
