"""Time kernels on a device, interleaved with their competitors."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any

from acceld.devices.neuron.bench import Bench, inputs_of
from acceld.devices.neuron.builds import Builds
from acceld.devices.neuron.case import Build, NeuronCase
from acceld.devices.neuron.checking import Checker
from acceld.devices.neuron.runtime.runner import NeuronRunner
from acceld.devices.neuron.runtime.timing import (
    MAX_ROUNDS,
    WARMUPS,
    Measurement,
    Round,
    choose,
    profile_from,
    warmups_after,
)
from acceld.evaluate.case import Failed
from acceld.evaluate.comparison import SESSIONS, Paired, paired
from acceld.evaluate.correctness.distributions import OWN
from acceld.evaluate.correctness.gates import Trial, fresh_seed, search_trial
from acceld.evaluate.simulated.children import Children
from acceld.model import Gate, Kernel, Profile
from acceld.workloads import ArraySpec

ROUNDS = 2
"""Least number of rounds of each kernel in a session, if several are compared."""


_STEP_BYTES = 8
"""Bytes by which the inputs are shifted between rounds. This is a whole number of elements for every dtype."""


@dataclass(frozen=True, slots=True)
class _Rounds:
    """The timed rounds of one session: those of the kernel, those of each competitor (in ``others``), and the runtime
    that ran them.
    """

    rounds: list[list[Round]]
    others: list[Kernel]
    runtime: str
    reported: list[str]


class Stopwatch:
    """Time kernels on cores whose neighbors are idle."""

    def __init__(self, bench: Bench, builds: Builds, children: Children, checker: Checker) -> None:
        self._bench = bench
        self._children = children
        self._builds = builds
        self._checker = checker

    async def time(self, case: NeuronCase) -> Profile | Failed:
        """Return the kernel's profile, or its failure.

        At the strict gate, on request, and outside of runs, the kernel is timed interleaved with its competitors. That
        takes as many sessions as a win needs, each in its own process, on any free core. After the last timing at the
        strict gate, the kernel has to be right on a fresh data set. A kernel that returns old outputs fails on that
        data set.
        """
        strict = case.request.gate is Gate.STRICT
        others = await self._others(case) if strict or case.request.interleave or not case.request.run else []
        async with self._children.data_for(case, search_trial(case.seeds)) as data:
            assert data is not None, "a workload whose own distribution is refused raises"
            inputs = await inputs_of(data)

        async def work(runner: NeuronRunner, last: bool) -> _Rounds | Failed:
            bad = await self._ready(case, runner, 0, case.build, inputs)
            if bad is not None:
                return bad
            there = [
                (slot, kernel)
                for slot, (kernel, other) in enumerate(others, 1)
                if await self._ready(case, runner, slot, other, inputs) is None
            ]
            rounds = await self._rounds(case, runner, [0, *(slot for slot, _ in there)], inputs)
            if isinstance(rounds, Failed):
                return rounds
            if strict and last:
                failed = await self._checker.attempt(case, runner, Trial(OWN, fresh_seed()), "after timing")
                if failed is not None:
                    return failed
            return _Rounds(rounds, [kernel for _, kernel in there], runner.runtime, list(runner.reported))

        count = SESSIONS if others else 1
        sessions: list[_Rounds] = []
        with case.stage("time"):
            for number in range(1, count + 1):
                found = await self._bench.on_core(case, timing=True, work=partial(work, last=number == count))
                if not isinstance(found, _Rounds):
                    return found
                sessions.append(found)
        mine = [one for session in sessions for one in session.rounds[0]]
        measured = choose(mine, case.request.chip, sessions[-1].runtime)
        reported = list(dict.fromkeys(line for session in sessions for line in session.reported))
        return _profile(case, measured, _pairs(sessions), reported)

    async def _others(self, case: NeuronCase) -> list[tuple[Kernel, Build]]:
        """Return the competitors of a kernel that compile and have the kernel's LNC. Each competitor is listed once,
        and the kernel itself is left out.
        """
        mine = case.request.kernel
        wanted = {kernel.sha256: kernel for kernel in case.request.against if kernel.lnc == mine.lnc}
        wanted.pop(mine.sha256, None)
        built = [(kernel, await self._builds.build(case, kernel)) for kernel in wanted.values()]
        return [(kernel, build) for kernel, build in built if not isinstance(build, Failed)]

    async def _ready(
        self, case: NeuronCase, runner: NeuronRunner, slot: int, build: Build, inputs: tuple[bytes, ...]
    ) -> Failed | None:
        """Load a kernel, and run it once on the inputs of the timing. Return the failure; None if the kernel ran."""
        bad = await self._bench.load(case, runner, slot, build)
        if bad is not None:
            return bad
        ran = await runner.run(inputs, slot=slot, deadline_s=self._bench.check_s)
        return ran if isinstance(ran, Failed) else None

    async def _rounds(
        self, case: NeuronCase, runner: NeuronRunner, slots: list[int], inputs: tuple[bytes, ...]
    ) -> list[list[Round]] | Failed:
        """Return the rounds of each slot, or a failure. The slots are timed in turn.

        Timing ends when the first slot is steady and has enough rounds to compare. Rounds alternate between ``inputs``
        and shifted inputs, so that no round finds the inputs of the round before.
        """
        both = inputs, _moved(case, inputs)
        chip, ends = case.request.chip, time.monotonic() + self._bench.time_s * len(slots)
        warmups = [WARMUPS for _ in slots]
        rounds: list[list[Round]] = [[] for _ in slots]
        least = ROUNDS if len(slots) > 1 else 1
        while len(rounds[0]) < MAX_ROUNDS:
            for place, slot in enumerate(slots):
                if rounds[place]:
                    now = both[len(rounds[place]) % 2]
                    ran = await runner.run(now, slot=slot, deadline_s=self._bench.check_s)
                    if isinstance(ran, Failed):
                        return ran
                left_s = max(ends - time.monotonic(), 0.0)
                found = await runner.round(chip, slot=slot, deadline_s=left_s, warmups=warmups[place])
                if isinstance(found, Failed):
                    return found
                if not found.steady(chip):
                    warmups[place] = warmups_after(found, chip, warmups[place])
                rounds[place].append(found)
            if len(rounds[0]) >= least and any(one.steady(chip) for one in rounds[0]):
                break
        return rounds


def _moved(case: NeuronCase, inputs: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return the inputs with every value shifted to the next element of its array.

    Arrays of whole numbers stay as they are, because their values may be indices.
    """
    arrays = [one for one in case.workload.kernel_arguments() if isinstance(one, ArraySpec)]
    return tuple(
        data if one.dtype.startswith(("int", "uint", "bool")) else data[_STEP_BYTES:] + data[:_STEP_BYTES]
        for one, data in zip(arrays, inputs, strict=True)
    )


def _pairs(sessions: Sequence[_Rounds]) -> list[Paired]:
    """Return a comparison of the kernel with each competitor that ran in every session."""
    found = []
    for kernel in sessions[0].others:
        theirs = [dict(zip((one.sha256 for one in s.others), s.rounds[1:], strict=True)) for s in sessions]
        if all(kernel.sha256 in session for session in theirs):
            rounds = [session[kernel.sha256] for session in theirs]
            found.append(compared([session.rounds[0] for session in sessions], rounds, kernel.sha256))
    return found


def compared(mine: Sequence[list[Round]], others: Sequence[list[Round]], other_sha256: str) -> Paired:
    """Compare the sessions of a kernel with the interleaved sessions of another kernel, by the means of the
    rounds.

    Raise ValueError if the numbers of sessions or the timing methods differ.
    """
    flat = [one for session in mine for one in session]
    other = [one for session in others for one in session]
    numbers, theirs = ([len(session) for session in side] for side in (mine, others))
    methods = sorted({one.method for one in (*flat, *other)})
    if not flat or numbers != theirs:
        raise ValueError(
            f"the sessions of the kernel have {numbers} rounds, and the sessions of kernel {other_sha256[:12]} have {theirs}: "
            "time both in the same rounds"
        )
    if len(methods) > 1:
        raise ValueError(
            f"the kernel and {other_sha256[:12]} were timed by {' and '.join(methods)}: time both by one method"
        )
    resolution_us = max(one.resolution_us or 0.0 for one in (*flat, *other))
    candidate_us, competitor_us = (
        [[fmean(one.samples_us) for one in session] for session in side] for side in (mine, others)
    )
    return paired(candidate_us, competitor_us, resolution_us, other_sha256)


def _profile(case: NeuronCase, measured: Measurement, pairs: list[Paired], reported: list[str]) -> Profile:
    """Return the profile of a measurement. It also has the simulator's prediction, and the difference up to which two
    kernels count as equally fast.
    """
    asked, compiled = case.build
    profile = profile_from(measured, compiled, asked)
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
        "tools": [one for one in (case.build[1].reported, *reported) if one],
        "route": case.build[1].route,
        "tie_percent": band,
    }
    return replace(profile, details=details)
