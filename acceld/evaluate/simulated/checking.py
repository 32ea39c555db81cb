"""Run the gates on the simulator: compare a program's outputs with the reference's, data set by data set.

A *variant* names what a data set is drawn from, see :mod:`acceld.evaluate.correctness.distributions`. A *trial*
is one run of the program on one data set.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

from acceld.config import EvaluateConfig
from acceld.evaluate.baselines import baseline_kernel
from acceld.evaluate.case import Failed, RecentlyUsed
from acceld.evaluate.correctness.admission import Admit
from acceld.evaluate.correctness.bands import is_banded
from acceld.evaluate.correctness.checks import HINTS, NOT_FINITE, at_hidden, near, placed
from acceld.evaluate.correctness.datasets import DataSet
from acceld.evaluate.correctness.distributions import OWN, hidden_variants
from acceld.evaluate.correctness.errors import Errors
from acceld.evaluate.correctness.gates import (
    EXPENSIVE_S,
    Seeds,
    Trial,
    TrialResult,
    check_errors,
    first_failure,
    fresh_seed,
    likely_first,
    published_trials,
    search_trial,
    strict_trials,
)
from acceld.evaluate.correctness.noise import Floors
from acceld.evaluate.interface import Priority
from acceld.evaluate.shapes import at_shape
from acceld.evaluate.simulated.case import TracedCase
from acceld.evaluate.simulated.children import Children, UnusedVariant
from acceld.evaluate.simulated.simulation import UNDEFINED
from acceld.evaluate.simulated.timer import Timer
from acceld.model import Failure, Gate, Status
from acceld.nki.frontend.permitted import RULE
from acceld.workloads import Workload, load_workload, shape_text

log = logging.getLogger(__name__)

_REMEMBERED = 256
_LEAST_CHECK_S = 30.0
_FIRST_CHECK_S = 600.0
"""Deadline in seconds of a trial while the baseline's time is not known."""
_OWN_TIMES = 20
"""The deadline of a trial is this many times the baseline's time."""
_PUBLISHED_BELOW_S = 1.0
"""Seconds of a trial below which the published gate is run. For a request of a person it is always run.

The published gate accepts or refuses no kernel, but a win waits for its end. Its five data sets also displace the
search gate's data set on disk.
"""


class Checker:
    """Run the trials of the gates.

    - ``weakness`` returns a failure if the workload's checks are too weak to prove a win.
    - ``share_data``: the strict gate draws its data sets once for each run instead of once for each candidate.
    - ``idle`` tells whether a slot is free, so that two trials may run at the same time.
    """

    def __init__(
        self,
        config: EvaluateConfig,
        children: Children,
        timer: Timer,
        floors: Floors,
        weakness: Callable[[TracedCase, Admit], Awaitable[Failure | None]],
        *,
        share_data: bool,
        idle: Callable[[], bool],
    ) -> None:
        self._config = config
        self._children = children
        self._timer = timer
        self._floors = floors
        self._weakness = weakness
        self._share_data = share_data
        self._idle = idle
        self._own_seconds: dict[str, float] = {}
        self._failed: RecentlyUsed[tuple[int, str], set[str]] = RecentlyUsed(_REMEMBERED)
        """Names of the trials that a kernel of a run failed, by run and workload."""

    async def pass_gate(
        self, case: TracedCase, gate: Gate, seeds: Seeds, allowed: asyncio.Event | None = None
    ) -> Failed | None:
        """Run every trial of one gate. Return the first failure; None if the program passes.

        At the search gate the program does not run before the event ``allowed`` is set, and at hidden shapes it is only
        traced. Raise WorkloadError if the workload can not be used.
        """
        case.checks, case.tried, case.worst_row = [], {}, 0.0
        if gate is Gate.SEARCH:
            return await self._try(case, search_trial(seeds), gate, allowed) or await self._try_hidden(case, None)
        return (
            await self._timer.confirm(case)
            or await self._try_hidden(case, seeds)
            or await self._try_all(case, seeds)
            or await self._admit(case)
        )

    async def pieces_ahead(
        self, loaded: Workload, seeds: Seeds, admit: Callable[[], Awaitable[object]]
    ) -> list[Callable[[], Awaitable[object]]]:
        """Return the work that the strict gate of this run will need, as functions to call one after another.

        The first examines the workload. The others make data sets that all candidates share, as many as fit on
        disk.
        """
        pieces, trials = [admit], list[Trial]()
        if self._share_data or await self._is_expensive(loaded):
            trials = await self._trials(loaded, seeds)
        data = dict.fromkeys((one.variant, one.seed) for one in trials)
        pieces += [partial(self._children.make_ahead, loaded, *one) for one in data]
        return pieces[: 1 + self._children.room_for(loaded)]

    async def read_again(self, case: TracedCase) -> Failed | None:
        """Trace a candidate a second time, as the permitted subset of Python and in another process.

        Return a failure if the second trace fails or gives another program, else None.
        """
        assert case.traced is not None
        again = await self._children.trace(
            case.request.kernel, case.workload.kernel_arguments(), case.request.chip, guarded=True
        )
        if isinstance(again, Failed):
            return Failed(Status.REJECTED, again.failure) if again.failure.rule == RULE else again
        try:
            case.spend({"trace": again.seconds})
            if await asyncio.to_thread(again.sha256) == await asyncio.to_thread(case.traced.sha256):
                return None
        finally:
            again.close()
        message = "run as the permitted subset of Python, the source gives another program"
        return Failed(
            Status.REJECTED,
            Failure("another_program", message, hint="Let the traced program depend on the source alone."),
        )

    async def published(self, case: TracedCase) -> bool | None:
        """Tell whether the program passes the published gate; None if this gate was not run.

        The gate is not run if the workload has no published seeds, does not use its own distribution, or would
        take too long.
        """
        loaded = case.workload
        per_trial_s = (case.seconds.get("reference", 0.0) + case.seconds.get("execute", 0.0)) / max(1, case.runs)
        if per_trial_s > _PUBLISHED_BELOW_S and case.request.priority is not Priority.PERSON:
            return None
        trials = list(published_trials(loaded))
        for trial in trials:
            async with self._children.data_set(loaded, trial.variant, trial.seed) as data:
                if isinstance(data, UnusedVariant) or case.traced is None:
                    return None
                tried = await self._children.attempt(case.traced, data, trial, self._deadline_s(loaded))
            if isinstance(tried, Failed):
                return False
            if not check_errors(loaded, trial, tried.errors, data.floors, None).check.passed:
                return False
        return True if trials else None

    async def _try_all(self, case: TracedCase, seeds: Seeds) -> Failed | None:
        """Run every trial of the strict gate, and sort the recorded checks by the order of the trials.

        Trials that an earlier kernel of the run failed come first, because a kernel with the same fault then fails
        soonest. Return the first failure; None if all pass.
        """
        key = (case.request.run, case.workload.hash)
        before = self._failed.keep(key, set)
        trials = likely_first(await self._trials(case.workload, seeds), before)

        async def one(trial: Trial) -> Failed | None:
            failed = await self._try(case, trial, Gate.STRICT)
            if failed is not None and failed.status is not Status.TIMEOUT and case.request.run:
                before.add(trial.name)
            return failed

        failed = await first_failure(trials, one, self._idle)
        case.order(trials)
        return failed

    async def _trials(self, loaded: Workload, seeds: Seeds) -> list[Trial]:
        """Return the trials of the strict gate."""
        expensive = await self._is_expensive(loaded)
        return strict_trials(loaded, seeds, expensive=expensive, shared=self._share_data, modelled=True)

    async def _is_expensive(self, loaded: Workload) -> bool:
        """Tell whether the reference of a workload is known to be expensive. Return False as long as its time was not
        measured.
        """
        cost = await asyncio.to_thread(self._floors.of_numpy, loaded, OWN)
        return cost is not None and cost.seconds > EXPENSIVE_S

    async def _try_hidden(self, case: TracedCase, seeds: Seeds | None) -> Failed | None:
        """Evaluate the kernel at the workload's hidden shapes. Return the first failure; None if the kernel is right
        at all hidden shapes.

        If ``seeds`` is None, the kernel is only traced at these shapes, and does not run on data.
        """
        for values in case.workload.hidden:
            if (failed := await self._elsewhere(case, values, seeds)) is not None:
                return failed
        return None

    async def _elsewhere(self, case: TracedCase, values: Mapping[str, int], seeds: Seeds | None) -> Failed | None:
        """Evaluate the kernel at one hidden shape. Return a failure; None if the kernel passes.

        If ``seeds`` is None, the kernel is only traced. The failure then does not name the shape, because models read
        failures of the search gate and must not learn hidden shapes.
        """
        shaped = await asyncio.to_thread(load_workload, case.workload.folder, values)
        there, where = TracedCase(at_shape(case.request, case.workload, shaped), shaped), shape_text(values)
        try:
            failed = await self._timer.time(there, shaped.kernel_arguments())
            if failed is not None:
                place = "a hidden shape" if seeds is None else f"the hidden shape {where}"
                return replace(failed, failure=placed(failed.failure, place))
            if seeds is None:
                return None
            for variant in hidden_variants(shaped, expensive=await self._is_expensive(case.workload)):
                seed = seeds.seed(f"hidden/{where}/{variant}") if self._share_data else fresh_seed()
                failed = await self._try(there, Trial(variant, seed, again=variant == OWN), Gate.STRICT)
                if failed is not None:
                    break
        finally:
            there.close()
        case.checks += [at_hidden(check, where) for check in there.checks]
        return failed and Failed(
            failed.status, placed(failed.failure, f"the hidden shape {where}"), case.correctness(Gate.STRICT)
        )

    async def _admit(self, case: TracedCase) -> Failed | None:
        """Return a failure (status ``suspect``) if the result needs a proof that the workload's checks are too weak to
        give; else None.
        """
        weak = await self._weakness(case, self._children.admit)
        return None if weak is None else Failed(Status.SUSPECT, weak)

    async def _try(
        self, case: TracedCase, trial: Trial, gate: Gate, allowed: asyncio.Event | None = None
    ) -> Failed | None:
        """Run the program on one data set and record the check.

        Return a failure; None if the program passes, or if the workload does not use the variant.
        """
        loaded = case.workload
        assert case.traced is not None
        ran = case.known.plain_run(trial)
        async with self._children.tried(case, case.traced, trial, self._deadline_s(loaded), allowed, ran) as found:
            if found is None:
                return None
            data, tried = found
            case.spend({"reference": data.seconds})
            if isinstance(tried, Failed):
                return tried
            case.spend(tried.seconds)
            case.runs += "execute" in tried.seconds
            if trial.is_plain and trial.variant == OWN:
                case.known.last = trial.variant, trial.seed, tried
            if case.request.priority is Priority.BASELINE:
                took = sum(tried.seconds.values())
                self._own_seconds[loaded.hash] = max(self._own_seconds.get(loaded.hash, 0.0), took)
            result = await self._compared(case, data, trial, tried.errors)
            if not result.check.passed and not tried.settled:
                again = Trial(trial.variant, trial.seed, again=True)
                cause = await self._children.attempt(case.traced, data, again, self._deadline_s(loaded))
                if isinstance(cause, Failed) and cause.failure.rule == UNDEFINED:
                    return cause
        if tried.on_chip is not None and result.check.passed:
            case.known.on_chip = told_on_chip(max(tried.on_chip, default=0.0), loaded.tolerance)
        hint = (
            "The performance model left out or merged instructions that the outputs need."
            if trial.as_timed
            else HINTS.get(trial.variant, "")
            if result.errors.finite
            else NOT_FINITE
        )
        failed = case.checked(result, gate, hint, trial)
        # the program has passed on this data set in its own order, so the order is the cause
        if failed is not None and trial.shuffled:
            return replace(failed, failure=replace(failed.failure, rule="affine_order"))
        return failed

    async def _compared(self, case: TracedCase, data: DataSet, trial: Trial, errors: tuple[Errors, ...]) -> TrialResult:
        """Compare the errors of one trial with their tolerances, and return the result.

        The noise of the baseline, and numpy's noise on the same inputs, cost most. They are measured only if the
        result depends on them.
        """
        loaded = case.workload
        result = check_errors(loaded, trial, errors, data.floors, None)
        if result.check.passed or not (result.errors.finite or is_banded(trial.variant)):
            return result
        noise = await self._noise_of_baseline(case, data, trial)
        result = check_errors(loaded, trial, errors, data.floors, noise)
        if not near(result.check):
            return result
        floors = await self._floors_here(loaded, trial)
        return check_errors(loaded, trial, errors, floors or data.floors, noise)

    async def _noise_of_baseline(self, case: TracedCase, data: DataSet, trial: Trial) -> tuple[Errors, ...] | None:
        """Return the errors of the workload's baseline on a variant, one for each piece of the outputs.

        At the first use the errors are measured on ``data`` and stored. Return None if the API has no baseline, or if
        the baseline fails or is wrong.
        """
        request, loaded = case.request, case.workload
        place = (loaded, request.kernel.api, request.chip, trial.variant)
        stored = await asyncio.to_thread(self._floors.of_kernel, *place)
        if stored is not None or request.kernel.api not in loaded.baselines:
            return stored
        kernel = baseline_kernel(loaded, request.kernel.api)
        traced = await self._children.trace(kernel, loaded.kernel_arguments(), request.chip)
        if isinstance(traced, Failed):
            log.warning("the baseline of %s can not be traced: %s", loaded.name, traced.failure.message)
            return None
        try:
            tried = await self._children.attempt(traced, data, Trial(trial.variant, data.seed), _FIRST_CHECK_S)
        finally:
            traced.close()
        if isinstance(tried, Failed):
            return None
        return await asyncio.to_thread(self._floors.learn_kernel, *place, tried.errors, data.floors)

    async def _floors_here(self, loaded: Workload, trial: Trial) -> tuple[Errors, ...]:
        """Return the noise of numpy's float32 arithmetic on exactly the inputs of one trial; () if the workload does
        not use the trial's variant.
        """
        async with self._children.data_set(loaded, trial.variant, trial.seed, measured=True) as data:
            return () if isinstance(data, UnusedVariant) else data.floors

    def _deadline_s(self, loaded: Workload) -> float:
        """Return the deadline of one trial in seconds. The deadline follows from the baseline's time, unless a deadline
        is configured.
        """
        if self._config.check_s:
            return self._config.check_s
        own = self._own_seconds.get(loaded.hash)
        return _FIRST_CHECK_S if own is None else max(_LEAST_CHECK_S, _OWN_TIMES * own)


def told_on_chip(error: float, tolerance: float) -> str:
    """Return a sentence that says whether a kernel with this modelled ``error`` would pass on a chip.

    ``error`` is the relative L2 error with functions of the scalar engine as inexact as the chip's.
    """
    result, remedy = "it would pass there", ""
    if error > tolerance:
        result = "it would fail there"
        remedy = "; write a more exact formula, or allow more by tolerance in workload.toml"
    near = ", near the limit" if tolerance / 2 < error <= tolerance else ""
    return (
        f"on a chip, whose scalar engine computes functions less exactly, the error would be {error:.2g}; up to {tolerance:.2g} "
        f"may pass, so {result}{near} (modelled){remedy}"
    )
