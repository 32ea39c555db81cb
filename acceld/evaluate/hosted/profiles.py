"""Compute latencies from the clocks of a referee: without the warm-up calls, and less the cost of an empty
call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median as middle_of

from acceld.evaluate.comparison import Estimate, Paired, median, paired, spread
from acceld.evaluate.evaluator import below_floor
from acceld.evaluate.hosted.bench import WorkerRecord
from acceld.evaluate.hosted.driver import Clock
from acceld.model import Failure

WARM_UPS = 2
"""Number of a worker's first calls that are checked but not counted, because caches and page tables are cold.

One such call suffices with a device's clock, because a call is then a median of several launches.
"""
_EVENT_RESOLUTION_US = 0.5
"""Resolution of a GPU's clock, as NVIDIA documents it for cuEventElapsedTime."""
RESOLUTION = "resolution"
"""The id of the rule that refuses a kernel whose time can not be distinguished from that of an empty call. The
machine's load affects whether the time can be distinguished.
"""
_MORE_THAN_ONE_CORE = 1.05


@dataclass(frozen=True, slots=True)
class Overhead:
    """The cost of an empty call by the wall clock and by the processor clock: medians and interquartile ranges."""

    wall_us: float
    processor_us: float
    wall_spread_us: float
    processor_spread_us: float
    clock: Clock
    """The clock whose times count: the driver's clock, or the wall clock if the processor clock is too coarse."""

    @property
    def resolution_us(self) -> float:
        """Return the smallest difference between two latencies that the clock can show, in microseconds."""
        if self.clock == "claimed":
            return _EVENT_RESOLUTION_US
        return max(0.1, self.processor_spread_us if self.clock == "processor" else self.wall_spread_us)

    @property
    def warm_ups(self) -> int:
        """Return the number of first calls of a session that are not counted."""
        return 1 if self.clock == "claimed" else WARM_UPS

    def plain(self) -> dict[str, float]:
        """Return the figures as a dict for JSON."""
        return {
            "wall": round(self.wall_us, 3),
            "processor": round(self.processor_us, 3),
            "wall_spread": round(self.wall_spread_us, 3),
            "processor_spread": round(self.processor_spread_us, 3),
        }


@dataclass(frozen=True, slots=True)
class Measured:
    """A kernel's latency with its samples. ``complaint`` is a failure if the clocks contradict each other; else None."""

    latency: Estimate
    samples_us: tuple[float, ...]
    overhead: Overhead
    wall_us: float
    paired: Paired | None
    complaint: Failure | None


def overhead_of(timed: WorkerRecord, clock: Clock) -> Overhead:
    """Return the cost of an empty call, from a session that made nothing but empty calls."""
    wall, processor = timed.wall_us[WARM_UPS:], timed.processor_us[WARM_UPS:]
    used = clock
    if clock == "processor" and min(processor) <= 0:
        used = "wall"  # the processor clock ticks too slowly to measure an empty call
    return Overhead(middle_of(wall), middle_of(processor), spread(wall), spread(processor), used)


def measured(
    sessions: Sequence[tuple[WorkerRecord, WorkerRecord | None]], competitor_sha256: str, overhead: Overhead
) -> Measured:
    """Return the latency over several sessions, and the comparison with the competitor that was timed in them.

    ``sessions`` has pairs of records: the kernel's, and the competitor's or None.
    """
    samples = [_net(timed, overhead) for timed, _ in sessions]
    latency = median(samples)
    walls = [middle_of(_after(timed.wall_us, overhead)) - overhead.wall_us for timed, _ in sessions]
    wall_us = middle_of(walls)
    both = [
        (mine, _net(other, overhead))
        for mine, (_, other) in zip(samples, sessions, strict=True)
        if other is not None and other.calls > overhead.warm_ups
    ]
    comparison = None
    if both:
        mine, others = zip(*both, strict=True)
        comparison = paired(mine, others, overhead.resolution_us, competitor_sha256)
    complaints = (
        _complaint(timed, middle_of(mine), wall, overhead)
        for (timed, _), mine, wall in zip(sessions, samples, walls, strict=True)
    )
    flat = tuple(one for session in samples for one in session)
    return Measured(latency, flat, overhead, wall_us, comparison, next(filter(None, complaints), None))


def _after(samples: Sequence[float], overhead: Overhead) -> Sequence[float]:
    """Return the samples without the samples of the warm-up calls; all samples if all calls are warm-up calls."""
    return samples[overhead.warm_ups :] if len(samples) > overhead.warm_ups else samples


def _net(timed: WorkerRecord, overhead: Overhead) -> list[float]:
    """Return the samples less the cost of an empty call, in microseconds.

    Each sample is at least a tenth of the clock's resolution, so that ratios of samples exist.
    """
    if overhead.clock == "claimed":
        raw: list[float] = [
            wall if claimed is None else claimed for claimed, wall in zip(timed.claimed_us, timed.wall_us, strict=True)
        ]
        cost = 0.0
    elif overhead.clock == "processor":
        raw, cost = list(timed.processor_us), overhead.processor_us
    else:
        raw, cost = list(timed.wall_us), overhead.wall_us
    least = overhead.resolution_us / 10
    return [max(least, one - cost) for one in _after(raw, overhead)]


def _complaint(timed: WorkerRecord, latency_us: float, wall_us: float, overhead: Overhead) -> Failure | None:
    """Return a failure if one session's time is too short to measure, or if the clocks of a session contradict each
    other; else None.
    """
    if latency_us < 2 * overhead.resolution_us:
        return Failure(
            RESOLUTION,
            f"a call takes {latency_us:.3g} µs, which the clock (resolution {overhead.resolution_us:.3g} µs) "
            "can not distinguish from an empty call",
            hint="Time the kernel again on an idle machine, or by another method.",
        )
    if overhead.clock == "processor" and sum(timed.processor_us) > _MORE_THAN_ONE_CORE * sum(timed.wall_us):
        return Failure(
            "clocks", "the kernel used more than one core", hint="Use one thread: a kernel is timed on one core."
        )
    if overhead.clock == "claimed" and latency_us > max(wall_us, 0.0) + overhead.wall_us:
        return Failure(
            "clocks",
            f"the kernel's own clock says {latency_us:.4g} µs, the judge's {wall_us:.4g} µs",
            hint="Leave clocks and counters alone in the kernel; the judge times each call.",
        )
    return None


def suspicion(found: Measured, shortest_us: float | None) -> Failure | None:
    """Return a failure if the measured times can not be true; else None.

    ``shortest_us`` is the least time that the declared work takes; None if that time is unknown.
    """
    if found.complaint is not None:
        return found.complaint
    if shortest_us is not None and found.latency.middle < shortest_us:
        return below_floor(found.latency.middle, shortest_us, "the kernel's declared work takes")
    return None
