"""Evaluate kernels that run with data on this machine. A referee in another process times them and checks their
outputs.

Every timed call has inputs of its own, and every output is checked after the worker has ended. A kernel is
timed interleaved with a competitor: its parent, or else the workload's baseline. The strict gate times it again
and then tries every distribution.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from acceld.config import EvaluateConfig
from acceld.errors import UsageError, WorkloadError
from acceld.evaluate import policy
from acceld.evaluate.baselines import baseline_kernel
from acceld.evaluate.case import Failed, RecentlyUsed
from acceld.evaluate.comparison import SESSIONS
from acceld.evaluate.correctness.bands import is_banded
from acceld.evaluate.correctness.checks import at_hidden, placed
from acceld.evaluate.correctness.distributions import OWN, hidden_variants, strict_variants
from acceld.evaluate.correctness.errors import Errors
from acceld.evaluate.correctness.gates import Trial, check_errors, fresh_seed
from acceld.evaluate.correctness.noise import NumpyFloor
from acceld.evaluate.evaluator import OrderedEvaluator, Started, opened
from acceld.evaluate.hosted.arena import Layout, lay_out, lay_out_apart
from acceld.evaluate.hosted.bench import Artefact, Bench, Checked, Draw, Terms, TimedSession, WorkerRecord
from acceld.evaluate.hosted.driver import STATIC_BYTES, Driver, Lease, job_of
from acceld.evaluate.hosted.grading import HostedCase, grade
from acceld.evaluate.hosted.profiles import RESOLUTION, Measured, Overhead, measured, overhead_of, suspicion
from acceld.evaluate.interface import EvaluationRequest, Workplace
from acceld.evaluate.sandbox.jail import Level
from acceld.evaluate.sandbox.ladder import SandboxReport
from acceld.evaluate.sandbox.process import TRIES, LostError, lost_in
from acceld.evaluate.shapes import at_shape
from acceld.model import Correctness, Evaluation, Failure, Gate, Kernel, Profile, Source, Status
from acceld.roofline import least_us
from acceld.workloads import PAPER_SEEDS, Workload, load_workload, shape_text

log = logging.getLogger(__name__)

_CALL_S = 10.0
"""Deadline of one call in seconds, unless configured."""
SEARCH_TERMS = Terms(calls=16, least=7, budget_s=1.2, call_s=_CALL_S)
COMPARED_TERMS = Terms(calls=8, least=5, budget_s=0.6, call_s=_CALL_S)
"""Limits of each session in which a possible win is measured."""
_LEAST_CALLS = 3
"""Fewest calls of a session. Memory must have room for the inputs of so many calls. So few calls suffice if each is a
median of several launches.
"""
_AMPLE_BYTES = 1 << 30
"""Bytes of inputs and outputs above which a device with a clock of its own gets only the fewest timed calls."""
_EMPTY_CALLS = 40
_TIMINGS = 4
"""Number of times that a kernel is measured, with the machine's rates, before its time is suspect."""
_REMEMBERED = 1024


def hosted(workplace: Workplace, driver: Driver) -> HostedEvaluator:
    """Return an evaluator for the kernels of ``driver``'s backend."""
    return HostedEvaluator(
        workplace.config,
        workplace.state_folder,
        driver,
        workload_folders=workplace.workload_folders,
        highest=Level.L4 if workplace.highest is None else workplace.highest,
        on_start=workplace.on_start,
    )


class HostedEvaluator(OrderedEvaluator[HostedCase]):
    """Evaluate kernels that run with data on this machine. The driver has what differs between backends."""

    def __init__(
        self,
        config: EvaluateConfig,
        state_folder: Path,
        driver: Driver,
        *,
        workload_folders: Iterable[Path | str] = (),
        highest: Level = Level.L4,
        on_start: Started | None = None,
    ) -> None:
        super().__init__(config, state_folder, workload_folders=workload_folders, highest=highest, on_start=on_start)
        self.backend = driver.backend
        self._driver = driver
        self._bench: Bench | None = None
        self._leases: tuple[Lease, ...] = ()
        self._known: RecentlyUsed[tuple[tuple[str, str, str], Gate], Evaluation] = RecentlyUsed(_REMEMBERED)
        self._built: RecentlyUsed[tuple[str, str], Artefact | Failed] = RecentlyUsed(_REMEMBERED)

    async def find_slots(self) -> int:
        """Find the devices to time on, and return their number. Raise DeviceError if this machine can not run
        the backend.
        """
        await asyncio.to_thread(self._driver.check)
        self._leases = tuple(await asyncio.to_thread(self._driver.leases))
        return len(self._leases)

    async def open(self, report: SandboxReport) -> None:
        """Measure or read this machine's rates, and start the child processes."""
        await asyncio.to_thread(self._driver.learn, self._folder)
        memory_bytes = int(self._config.memory_gib * 2**30)
        self._bench = Bench(
            self._driver, report.level, report.cgroup_folder, build_s=self._config.build_s, memory_bytes=memory_bytes
        )
        await self._bench.start()

    async def close(self) -> None:
        """End the child processes."""
        if self._bench is not None:
            bench, self._bench = self._bench, None
            await bench.stop()

    def forget(self) -> None:
        """Forget all results, so that every kernel is evaluated again."""
        self._known.clear()

    def statistics(self) -> dict[str, object]:
        """Return figures for the status page: queue length, age of the oldest request, slots in use, sandbox
        level, devices.
        """
        return {**super().statistics(), "devices": [one.name for one in self._leases]}

    def slot_name(self, slot: int) -> str:
        """Return the name of the slot's device."""
        return self._leases[slot].name

    async def run_stages(self, request: EvaluationRequest, loaded: Workload, slot: int) -> Evaluation:
        """Evaluate one candidate and return the result.

        If something outside of acceld killed a child process, the evaluation is repeated, :data:`TRIES` times
        in all.
        """
        for left in reversed(range(TRIES)):
            try:
                return await super().run_stages(request, loaded, slot)
            except (LostError, BaseExceptionGroup) as error:
                if (lost := lost_in(error)) is None:
                    raise
                if not left:
                    raise lost from error
                log.warning("%s; the kernel is evaluated again", lost.message)
        raise AssertionError("not reached, because the last try returns or raises")

    async def case(self, request: EvaluationRequest, loaded: Workload, slot: int) -> HostedCase:
        """Return the state of a new evaluation.

        Raise DeviceError if this machine can not run kernels of the API, WorkloadError if the workload has no
        reference.
        """
        await asyncio.to_thread(self._driver.check, request.kernel.api)
        if loaded.reference is None and not self._driver.reference:
            raise WorkloadError(
                f"workload {loaded.name} has no reference to check measured kernels against",
                hint=f"Write {loaded.folder / 'reference.py'} with a function forward.",
            )
        return HostedCase(request, loaded, lease=self._leases[slot])

    def policy(self, kernel: Kernel) -> Failure | None:
        """Return a failure for the first forbidden construct in the source; None if the source has none."""
        if kernel.api == "numpy":
            return policy.check(kernel.text, kernel.filename, library=policy.NUMPY_REACH)
        return self._driver.refuse(kernel)

    async def build(self, case: HostedCase) -> Failed | None:
        """Build the kernel, unless the same source was built before. Return a failure, or None."""
        built = await self._build(case.request.kernel, case.workload)
        if isinstance(built, Failed):
            return built
        case.built, case.program_sha256, case.log = built, built.sha256, built.log
        case.seconds["build"] = built.seconds
        return None

    def recall(self, case: HostedCase) -> Evaluation | None:
        """Return the stored result of an equal built kernel; None if no stored result answers the request.

        A pass of the strict gate is never reused.
        """
        if case.request.practice:
            return None
        strict = case.request.gate is Gate.STRICT
        stored = self._known.get((case.program, _reached(case)))
        if stored is None or (stored.status is Status.PASSED and (strict or _asks_interleaved(case.request, stored))):
            return None
        return replace(stored, source_sha256=case.request.kernel.sha256, reused=True)

    async def measure(self, case: HostedCase) -> Failed | None:
        """Time the kernel interleaved with its competitor, and check every timed call. Return a failure, or
        None.

        A request that may lead to a win takes several sessions, any other request one. Other work on the machine can
        make a time look too short. So the machine's rates and the kernel are measured again before the kernel is
        called suspect.
        """
        for left in reversed(range(_TIMINGS)):
            case.checks.clear()
            failed = await self._measure(case)
            if failed is not None or not left or self.suspicion(case) is None:
                return failed
            await asyncio.to_thread(self._driver.learn, self._folder, again=True)
        raise AssertionError("not reached, because the last timing returns")

    async def _measure(self, case: HostedCase) -> Failed | None:
        """Time the kernel once, and check every timed call. Return a failure, or None."""
        layout = _layout(case.artefact)
        decides = _decides(case.request)
        terms = self._terms(COMPARED_TERMS if decides else SEARCH_TERMS, layout)
        competitor, other = await self._competitor(case) or (None, None)
        draws = [Draw(OWN, fresh_seed()) for _ in range(terms.calls * (SESSIONS if decides else 1))]
        overhead = await self._overhead(layout, case.lease)
        conditions = [await asyncio.to_thread(self._driver.condition, case.lease)]
        failed, sessions = await self._graded(case, layout, draws, terms, other)
        conditions.append(await asyncio.to_thread(self._driver.condition, case.lease))
        if failed is not None:
            return failed
        case.measured = measured(sessions, competitor.sha256 if competitor else "", overhead)
        case.profile = self._profile(case, case.measured)
        if any(conditions):
            details = {**case.profile.details, "condition": [dict(one) for one in conditions]}
            case.profile = replace(case.profile, details=details)
        return None

    def suspicion(self, case: HostedCase) -> Failed | None:
        """Return a failure (``suspect``) if the clocks or the declared work contradict the latency, else None."""
        assert case.measured is not None
        suspect = suspicion(case.measured, least_us(case.workload, self._driver.limits(case.request.chip)))
        return None if suspect is None else Failed(Status.SUSPECT, suspect, case.correctness(Gate.SEARCH))

    def is_enough(self, case: HostedCase) -> bool:
        """Return False: the evaluation of a hosted kernel can not end after its latency, because it was timed on data
        that must be checked.
        """
        return False

    async def check(self, case: HostedCase, gate: Gate) -> Failed | None:
        """Try every variant at the strict gate. Return the first failure, or None.

        The search gate has nothing more to do, because every timed call was checked.
        """
        if gate is Gate.SEARCH:
            return None
        failed = await self._try_everything(case)
        if failed is not None:
            return failed
        weak = await self.weakness(case, opened(self._bench).admit)
        return None if weak is None else Failed(Status.SUSPECT, weak, case.correctness(Gate.STRICT))

    def correctness(self, case: HostedCase) -> Correctness:
        """Return the record of the checks, for a kernel that passed all of them."""
        return case.correctness(_reached(case))

    def percents(self, case: HostedCase, latency_us: float) -> tuple[float | None, float | None]:
        """Return the best time at this machine's measured rates, in percent of the latency; None if the rates are
        unknown.

        The percentage is returned twice, because peak and attainable are both the measured rates here.
        """
        best = least_us(case.workload, self._driver.peaks(case.request.chip))
        percent = None if best is None else 100 * best / latency_us
        return percent, percent

    async def learn(self, case: HostedCase, evaluation: Evaluation) -> None:
        """Store the result, so that later candidates whose built kernel is the same get it without a measurement.

        Nothing is stored if a model's tool requested the evaluation, or if the machine was too busy for a reliable
        time.
        """
        busy = evaluation.failure is not None and evaluation.failure.rule == RESOLUTION
        if not case.request.practice and not busy:
            self._known[case.program, _reached(case)] = evaluation

    async def _build(self, kernel: Kernel, loaded: Workload) -> Artefact | Failed:
        """Return the built kernel or a failure. A kernel that was built before is not built again."""
        settings = dict(await asyncio.to_thread(self._driver.settings, kernel.api))
        job = job_of(kernel, loaded.arguments, loaded.outputs, settings)
        key = (json.dumps(job, sort_keys=True), kernel.sha256)
        self._built[key] = built = self._built.get(key) or await opened(self._bench).build(job)
        return built

    async def _graded(
        self, case: HostedCase, layout: Layout, draws: Sequence[Draw], terms: Terms, other: Artefact | None = None
    ) -> tuple[Failed | None, list[tuple[WorkerRecord, WorkerRecord | None]]]:
        """Time one call for each draw, in sessions of at most ``terms.calls`` calls, and check all outputs.

        Return the first failure or None, and for each session the records of the kernel and of the competitor
        ``other``.
        """
        sessions: list[tuple[WorkerRecord, WorkerRecord | None]] = []
        made: list[Draw] = []
        checked: list[Checked] = []
        for start in range(0, len(draws), terms.calls):
            part = draws[start : start + terms.calls]
            timed, others, found = await self._session(case, layout, part, terms, other)
            sessions.append((timed, others))
            made += part[: timed.calls]
            checked += found
            if timed.failed is not None:
                break
        noise = await self._noise_of_baseline(case, layout, made, checked)
        unwritten = [one for timed, _ in sessions for one in timed.unwritten]
        return grade(case, self._floors, sessions[-1][0].failed, unwritten, made, checked, noise), sessions

    async def _session(
        self, case: HostedCase, layout: Layout, draws: Sequence[Draw], terms: Terms, other: Artefact | None
    ) -> tuple[WorkerRecord, WorkerRecord | None, list[Checked]]:
        """Run one session: generate inputs, time the calls, and check the outputs after the workers have ended.

        Return the kernel's record, the competitor's record or None, and the check of each call of the kernel.
        """
        bench, loaded, built = opened(self._bench), case.workload, case.artefact
        with case.stage("generate"):
            batches = await bench.generate(loaded, layout, draws)
        try:
            kept = bench.keep(layout, len(draws))
            try:
                with case.stage("time"):
                    artefacts = [built] if other is None else [built, other]
                    session = TimedSession(layout, batches, case.lease, terms, loaded.mutated)
                    timed, *others = await bench.time(artefacts, session, kept)
                with case.stage("check"):
                    checked = (
                        await self._check(loaded, layout, draws[: timed.calls], bench, kept) if timed.calls else []
                    )
            finally:
                kept.close()
        finally:
            batches.close()
        return timed, others[0] if others else None, checked

    async def _check(
        self, loaded: Workload, layout: Layout, draws: Sequence[Draw], bench: Bench, kept: Any
    ) -> list[Checked]:
        """Check the outputs of a session with the known noise floors, and store floors that were measured
        meanwhile.
        """
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

    async def _try_everything(self, case: HostedCase) -> Failed | None:
        """Try every distribution, every metamorphic relation and the published seeds, then the hidden shapes.

        One call is repeated, and repeated with changed inputs, to find a kernel that keeps something between calls. A
        kernel on the host can see the addresses of its arrays. So it is also tried at the addresses of the timed
        sessions, with as many calls, where it can not see that it is not timed. Return the first failure, or None.
        """
        kept = case.artefact.counters.get(STATIC_BYTES, 0.0)
        knows = self._driver.clock == "processor"  # kernels on a device see other addresses than those on the host
        timed = _layout(case.artefact)
        layout = _layout_apart(case) if knows else timed
        others = [Draw(variant, fresh_seed()) for variant in strict_variants(case.workload)]
        others += [Draw(OWN, seed) for seed in PAPER_SEEDS]
        parts = sessions_of(Draw(OWN, fresh_seed()), len(layout.inputs), others, self._room(layout))
        tried = [(layout, draws) for draws in parts]
        if knows:
            calls = self._terms(COMPARED_TERMS, timed).calls
            tried += [(timed, draws) for draws in mixed([d for d in others if d.variant != OWN], calls)]
        for place, draws in tried:
            failed, *_ = await self._graded(case, place, draws, self._untimed(len(draws)))
            if failed is not None:
                return failed
        for values in case.workload.hidden:
            if (failed := await self._elsewhere(case, values)) is not None:
                return failed
        if kept:
            message = f"the kernel keeps {kept:.0f} bytes of memory from one call to the next, which all callers share"
            hint = "Use variables of the function, or malloc and free in each call; constant tables are fine."
            return Failed(Status.REJECTED, Failure("kept_state", message, hint=hint), case.correctness(Gate.STRICT))
        return None

    def _terms(self, wished: Terms, layout: Layout) -> Terms:
        """Return ``wished`` with no more calls than inputs and outputs fit into memory.

        If the device has a clock of its own, each call is already a median. So fewer calls suffice if their
        arrays are large.
        """
        calls, least = min(wished.calls, self._room(layout)), wished.least
        if self._driver.clock == "claimed":
            least = _LEAST_CALLS
            calls = min(calls, max(least, _AMPLE_BYTES // max(1, layout.input_bytes + layout.output_bytes)))
        return Terms(calls, min(least, calls), wished.budget_s, self._config.check_s or _CALL_S)

    def _room(self, layout: Layout) -> int:
        """Return how many calls' inputs and outputs fit into memory.

        Raise UsageError if these are fewer than the shortest session needs.
        """
        call_bytes = layout.input_bytes + layout.output_bytes
        most = self._driver.batch_bytes // max(1, call_bytes)
        if most < _LEAST_CALLS:
            raise UsageError(
                f"one call of this workload has {call_bytes >> 20} MiB of inputs and outputs, which is too much to time it",
                hint="Make the shapes of the workload smaller.",
            )
        return most

    def _untimed(self, calls: int) -> Terms:
        """Return the limits of a session with ``calls`` calls whose outputs are checked, and whose times are not
        used.
        """
        return Terms(calls, calls, self._config.time_s, self._config.check_s or _CALL_S)

    async def _elsewhere(self, case: HostedCase, values: Mapping[str, int]) -> Failed | None:
        """Try the kernel at one hidden shape, on each declared distribution. Return a failure, or None."""
        shaped = await asyncio.to_thread(load_workload, case.workload.folder, values)
        request, where = at_shape(case.request, case.workload, shaped), shape_text(values)
        built = await self._build(request.kernel, shaped)
        if isinstance(built, Failed):
            return Failed(built.status, placed(built.failure, f"the hidden shape {where}"))
        there = replace(case, request=request, loaded=shaped, built=built, checks=[], seconds={})
        layout = _layout(built)
        draws = [Draw(variant, fresh_seed()) for variant in hidden_variants(shaped)]
        terms = self._untimed(min(len(draws), self._room(layout)))
        failed, *_ = await self._graded(there, layout, draws, terms)
        case.checks += [at_hidden(check, where) for check in there.checks]
        return failed and Failed(
            failed.status, placed(failed.failure, f"the hidden shape {where}"), case.correctness(Gate.STRICT)
        )

    async def _noise_of_baseline(
        self, case: HostedCase, layout: Layout, draws: Sequence[Draw], checked: Sequence[Checked]
    ) -> dict[str, tuple[Errors, ...]]:
        """Return the errors of the workload's baseline, for each variant on which the kernel exceeds numpy's
        noise.

        Errors that are not stored yet are measured now, in a session of the baseline.
        """
        request, loaded = case.request, case.workload
        place = (loaded, request.kernel.api, request.chip)
        wanted: dict[str, Draw] = {}
        known: dict[str, tuple[Errors, ...]] = {}
        for draw, one in zip(draws, checked, strict=False):
            numpy_floor = await asyncio.to_thread(self._floors.of_numpy, loaded, draw.variant)
            if one.refused or numpy_floor is None or draw.seed in PAPER_SEEDS:
                continue
            trial = Trial(draw.variant, draw.seed)
            if check_errors(loaded, trial, one.errors, numpy_floor.floors, None).check.passed:
                continue
            stored = await asyncio.to_thread(self._floors.of_kernel, *place, draw.variant)
            if stored is not None:
                known[draw.variant] = stored
            elif is_banded(draw.variant) or all(errors.finite for errors in one.errors):
                wanted[draw.variant] = Draw(draw.variant, fresh_seed())
        if not wanted or request.kernel.api not in loaded.baselines:
            return known
        built = await self._build(await asyncio.to_thread(baseline_kernel, loaded, request.kernel.api), loaded)
        if isinstance(built, Failed):
            return known
        baseline = replace(case, built=built, checks=[], seconds={})
        again = list(wanted.values())
        timed, _, found = await self._session(baseline, layout, again, self._untimed(len(again)), None)
        if timed.failed is not None:
            return known
        for draw, one in zip(again, found, strict=True):
            floor = await asyncio.to_thread(self._floors.of_numpy, loaded, draw.variant)
            noise = floor.floors if floor else ()
            learned = await asyncio.to_thread(self._floors.learn_kernel, *place, draw.variant, one.errors, noise)
            if learned is not None:
                known[draw.variant] = learned
        return known

    async def _competitor(self, case: HostedCase) -> tuple[Kernel, Artefact] | None:
        """Return the kernel to interleave with, and its built form: the parent, or else the workload's baseline.

        Return None if there is no such kernel, if it can not be built, or if its built bytes equal the candidate's.
        """
        api = case.request.kernel.api
        kernel = next((one for one in case.request.against if one.api == api), None)
        if kernel is None and api in case.workload.baselines:
            kernel = await asyncio.to_thread(baseline_kernel, case.workload, api)
        if kernel is None:
            return None
        built = await self._build(kernel, case.workload)
        if isinstance(built, Failed) or built.sha256 == case.artefact.sha256:
            return None
        return kernel, built

    async def _overhead(self, layout: Layout, lease: Lease) -> Overhead:
        """Measure the cost of an empty call. The cost is measured for each evaluation, because the cost depends on the
        machine's load.
        """
        # A device's clock does not include the cost of an empty call. The cost is then an upper bound of what the clock
        # reads.
        calls = _EMPTY_CALLS if self._driver.clock != "claimed" else min(_EMPTY_CALLS, self._room(layout))
        return overhead_of(await opened(self._bench).empty(layout, lease, calls), self._driver.clock)

    def _profile(self, case: HostedCase, found: Measured) -> Profile:
        """Return the profile of a measured kernel."""
        built, overhead = case.artefact, found.overhead
        details: dict[str, Any] = {
            "clock": overhead.clock,
            "wall_us": found.wall_us,
            "empty_us": overhead.plain(),
            "device": case.lease.name,
            "calls": len(found.samples_us),
        }
        if found.paired is not None:
            details["paired"] = [found.paired.plain()]
        return Profile(
            source=Source.MEASURED,
            chip=case.request.chip,
            api=case.request.kernel.api,
            latency_us=found.latency.middle,
            method=f"doorbell, {overhead.clock} clock",
            sdk=self._driver.sdk(case.request.kernel.api),
            resolution_us=overhead.resolution_us,
            interval_percent=found.latency.half_percent,
            counters=dict(built.counters),
            notes=tuple(built.log.splitlines()[:40]),
            samples_us=found.samples_us,
            details=details,
        )


def _reached(case: HostedCase) -> Gate:
    """Return the gate for which the result of a request counts. A request for the latency alone counts for the search
    gate.
    """
    return Gate.STRICT if case.request.gate is Gate.STRICT else Gate.SEARCH


def _layout(built: Artefact) -> Layout:
    """Return the memory layout for timed calls."""
    return lay_out(built.job["arguments"], built.job["outputs"])


def _layout_apart(case: HostedCase) -> Layout:
    """Return the memory layout for calls that are only checked, with unreachable pages between the arrays."""
    job = case.artefact.job
    return lay_out_apart(job["arguments"], job["outputs"], np.random.default_rng(), case.workload.mutated)


def _decides(request: EvaluationRequest) -> bool:
    """Tell whether the request may lead to a win: it is for the strict gate, or it asks for a comparison."""
    return request.gate is Gate.STRICT or request.interleave or (not request.run and bool(request.against))


def _asks_interleaved(request: EvaluationRequest, stored: Evaluation) -> bool:
    """Tell whether the request asks for a comparison that the stored evaluation does not have."""
    if request.run or not request.against or stored.profile is None:
        return False
    enough = [pair["against"] for pair in stored.profile.details.get("paired", ()) if pair["sessions"] >= SESSIONS]
    return request.against[0].sha256 not in enough


def sessions_of(first: Draw, inputs: int, others: Sequence[Draw], room: int) -> list[list[Draw]]:
    """Return lists of draws, one list for the calls of each worker, of at most ``room`` draws each.

    The draws are ``first``, ``first`` with one element of each input changed, ``others``, and ``first`` again.
    Changed and repeated calls follow ``first`` in the same worker: only there can a kernel keep something from
    one call to the next.
    """
    changed = [replace(first, changed=number) for number in range(inputs)]
    near = [first, *changed[: room - 2]]
    beside = room - 1 - len(near)
    parts = [[*near, *others[:beside], replace(first, again=True)]]
    parts += [[first, *changed[start : start + room - 1]] for start in range(room - 2, inputs, room - 1)]
    return parts + [list(others[start : start + room]) for start in range(beside, len(others), room)]


def mixed(draws: Sequence[Draw], calls: int) -> list[list[Draw]]:
    """Return the draws with fresh seeds and in random order, as lists for sessions of at most ``calls`` calls.

    The order is random so that a kernel that counts its calls can not know which call has which kind of data.
    """
    order = secrets.SystemRandom().sample(draws, len(draws))
    fresh = [replace(draw, seed=fresh_seed()) for draw in order]
    return [fresh[start : start + calls] for start in range(0, len(fresh), calls)]
