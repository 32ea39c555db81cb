"""Decide whether timed executions are steady, and compute their statistics.

A round is a number of timed executions, after warm-ups, in one load of the NEFF. A round is steady if ``max - min <=
max(limit * min, resolution)``; the limit is 1 % on trn1 and 4 % on later chips. Rounds are repeated until a round is
steady or ten rounds are done. Times of different methods are never compared: a Measurement names its method and the
method's resolution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from acceld.devices.neuron.runtime.cache import Compiled
from acceld.devices.neuron.runtime.requests import CompileRequest
from acceld.devices.neuron.tools.reports import ProfileSummary, parse_summary
from acceld.errors import DeviceError
from acceld.model import Profile, Source

WARMUPS = 2
ITERATIONS = 10
MOST_WARMUPS = 16
MAX_ROUNDS = 10
SPREAD = {"trn1": 0.01}
OTHER_SPREAD = 0.04
TOTAL_TIME_GRID_US = 55.56
"""Step of the times that the profiler reports as ``total_time``, in microseconds, in published trn1 profiles
(AccelOpt's); unknown for other chips.
"""
STAND_IN = "+standin"
"""Suffix of the version of stand-in software, whose times never count as ``measured``."""


class ProofError(DeviceError):
    """Raised if nothing proves that the device ran. A time without this proof is never a measurement."""


@dataclass(frozen=True, slots=True)
class Round:
    """One round of timed executions. ``samples_us`` has the time of each execution in microseconds, in order, and
    ``summary`` the profiler's summary, which proves that the device ran.
    """

    samples_us: tuple[float, ...]
    method: str
    resolution_us: float | None
    """Resolution of the timing method; None if the resolution is not documented."""
    summary: ProfileSummary | None
    notes: tuple[str, ...] = ()

    @property
    def spread_us(self) -> float:
        """Return the difference between the greatest and the least time, in microseconds."""
        return max(self.samples_us) - min(self.samples_us)

    def steady(self, chip: str) -> bool:
        """Tell whether the spread of the samples is within the chip's limit or the method's resolution."""
        limit = SPREAD.get(chip, OTHER_SPREAD) * min(self.samples_us)
        return self.spread_us <= max(limit, self.resolution_us or 0.0) * (1 + 1e-9)


@dataclass(frozen=True, slots=True)
class Clock:
    """The timing method of a machine and its resolution, found by timing a known-good kernel."""

    method: str
    resolution_us: float | None
    """Resolution of the timing method; None if the resolution is not documented."""

    @property
    def least_win_us(self) -> float | None:
        """Return the least difference of two latencies that counts as a win: twice the resolution. Return None if the
        resolution is unknown.
        """
        return None if self.resolution_us is None else 2.0 * self.resolution_us

    @property
    def text(self) -> str:
        """Return the method and its resolution in one line for people."""
        if self.resolution_us is None:
            return (
                f"timed by {self.method}, whose resolution here is not known: a win is compared with the spread alone"
            )
        return (
            f"timed by {self.method}: resolution {self.resolution_us:g} µs, least visible win {self.least_win_us:g} µs"
        )

    def plain(self) -> dict[str, object]:
        """Return the record as data for JSON."""
        return {
            "method": self.method,
            "resolution_us": self.resolution_us,
            "least_win_us": self.least_win_us,
        }


@dataclass(frozen=True, slots=True)
class Measurement:
    """A latency: the mean of the first steady round. If no round is steady, the round with the least spread counts."""

    chip: str
    rounds: tuple[Round, ...]
    chosen: int
    runtime: str
    """Runtime and version, such as ``nrtpy 2.35.30``."""
    notes: tuple[str, ...] = field(default=())

    @property
    def best(self) -> Round:
        """Return the round whose mean is the latency."""
        return self.rounds[self.chosen]

    @property
    def latency_us(self) -> float:
        """Return the mean time of the best round, in microseconds."""
        return sum(self.best.samples_us) / len(self.best.samples_us)

    @property
    def steady(self) -> bool:
        """Tell whether the spread of the best round is within the chip's limit or the method's resolution."""
        return self.best.steady(self.chip)


def warmups_after(unsteady: Round, chip: str, warmups: int) -> int:
    """Return the number of warm-ups for the round after the round ``unsteady``.

    The number doubles if only the first executions were slow, because more warm-ups cure that: the first execution
    after a load starts the engines, and a kernel on GpSimd loads its library once, which takes milliseconds. Otherwise
    the number stays.
    """
    settled = replace(unsteady, samples_us=unsteady.samples_us[len(unsteady.samples_us) // 2 :])
    slow = max(unsteady.samples_us[: len(unsteady.samples_us) // 2]) > max(settled.samples_us)
    return min(2 * warmups, MOST_WARMUPS) if slow and settled.steady(chip) else warmups


def folded(events_us: Sequence[float], iterations: int, warmups: int, lnc: int) -> tuple[tuple[float, ...], str]:
    """Return one time for each execution, and a note if the runtime reported several times for an execution.

    If there are as many times as physical cores, the cores ran side by side, and the longest time counts. Otherwise the
    times follow one another and are added. The times of the warm-ups come first and are left out.
    """
    fitting = [n for n in (iterations, warmups + iterations) if len(events_us) >= n and not len(events_us) % n]
    for executions in sorted(fitting, key=lambda n: len(events_us) // n not in (1, lnc)):
        each = len(events_us) // executions
        groups = [events_us[place : place + each] for place in range(0, len(events_us), each)][-iterations:]
        samples = tuple(max(group) if each == lnc else sum(group) for group in groups)
        how = "the longest counts" if each == lnc else "their sum counts"
        return samples, f"{each} events an execution: {how}" if each > 1 else ""
    return tuple(events_us), ""


def read_round(record: Mapping[str, Any], iterations: int, chip: str, *, warmups: int = 0, lnc: int = 1) -> Round:
    """Return a runner's answer as a Round.

    Raise ProofError if the answer does not prove that the device ran in each execution: a time is missing or
    zero, or a summary is incomplete or shows no activity of any engine.
    """
    method, note = str(record["method"]), ""
    try:
        summaries = [parse_summary(text) for text in record.get("summaries") or _said(record.get("summary"))]
    except DeviceError as error:
        raise ProofError(error.message, hint=error.hint) from error
    if "summaries" in record:
        samples = tuple(summary.total_us for summary in summaries)
        resolution = TOTAL_TIME_GRID_US if chip == "trn1" else None
    else:
        events_us = [float(one) for one in record["samples_us"]]
        samples, note = folded(events_us, iterations, warmups, lnc)
        resolution = float(record["resolution_us"])
    if any(not summary.device_ran for summary in summaries):
        raise ProofError("no proof that the device ran: a trace shows no activity of any engine")
    if len(samples) != iterations or not all(0 < one < float("inf") for one in samples):
        raise ProofError(
            f"the device may not have run {iterations} times: {len(samples)} times were reported, of which each must be greater "
            f"than 0: {list(samples)}"
        )
    return Round(samples, method, resolution, summaries[-1] if summaries else None, (note,) if note else ())


def _said(summary: str | None) -> list[str]:
    return [summary] if summary else []


def choose(rounds: Sequence[Round], chip: str, runtime: str) -> Measurement:
    """Return the Measurement that ``rounds`` give. Raise ValueError if there is no round, or if the rounds were timed
    by several methods.
    """
    if not rounds or len({one.method for one in rounds}) != 1:
        raise ValueError("a measurement needs at least one round, and all rounds timed by one method")
    steady = [number for number, one in enumerate(rounds) if one.steady(chip)]
    least = min(range(len(rounds)), key=lambda number: rounds[number].spread_us / min(rounds[number].samples_us))
    notes = [] if steady else [f"not steady after {len(rounds)} rounds"]
    notes += dict.fromkeys(note for one in rounds for note in one.notes)
    if rounds[0].resolution_us is None:
        notes.append(f"the resolution of {rounds[0].method} on {chip} is not known")
    return Measurement(chip, tuple(rounds), steady[0] if steady else least, runtime, tuple(notes))


def profile_from(measurement: Measurement, compiled: Compiled, request: CompileRequest) -> Profile:
    """Return the Profile of a measurement. Its source is ``measured`` only if compiler and runtime are Neuron's own."""
    best, summary = measurement.best, measurement.best.summary
    versions = (compiled.compiler_version, measurement.runtime, summary.compiler_version if summary else "")
    stand_in = any(STAND_IN in version for version in versions)
    half_us = max(best.spread_us / 2, best.resolution_us or 0.0)
    return Profile(
        source=Source.SIMULATED if stand_in else Source.MEASURED,
        chip=measurement.chip,
        api=request.kernel.api,
        latency_us=measurement.latency_us,
        method=f"stand-in for {best.method}" if stand_in else best.method,
        sdk=f"neuronx-cc {compiled.compiler_version}, {measurement.runtime}",
        resolution_us=best.resolution_us or 0.0,
        interval_percent=100 * half_us / measurement.latency_us,
        engines_us=summary.engines_us if summary else {},
        counters=summary.counters if summary else {},
        notes=measurement.notes,
        samples_us=best.samples_us,
        details={
            "rounds_us": [list(one.samples_us) for one in measurement.rounds],
            "throttled_percent": summary.throttled_percent if summary else None,
            "throttle": dict(summary.throttle) if summary else {},
            "summary": dict(summary.fields) if summary else {},
            "versions": dict(summary.versions) if summary else {},
            "dge": "disabled" if "--disable-dge" in request.flags else "chosen by the compiler",
            "lnc": request.kernel.lnc,
            "flags": list(request.all_flags),
            "neff": str(compiled.neff),
            "traces": str(compiled.traces),
        },
    )
