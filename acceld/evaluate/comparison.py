"""Estimate a latency from samples, and compare two kernels that were timed interleaved.

All devices use this module's bootstrap and its rule for a win. In a *session* each kernel runs in one process. Memory
pages, caches and neighboring processes do not change within a session. So samples of one session agree better than
samples of different sessions. The bootstrap therefore draws sessions first, and then samples from each drawn session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SESSIONS = 5
"""Fewest sessions for a win. With five sessions, the range of the medians misses the true median in one of sixteen
cases.
"""
_RESAMPLES = 2000
_LOW, _HIGH = 2.5, 97.5


@dataclass(frozen=True, slots=True)
class Estimate:
    """The median of samples and its 95 % bootstrap interval (percentile method). Median and bounds are in the unit of
    the samples.
    """

    middle: float
    low: float
    high: float

    @property
    def half_percent(self) -> float:
        """Return half the width of the interval, in percent of the median."""
        return 100 * (self.high - self.low) / 2 / self.middle if self.middle else float("inf")


@dataclass(frozen=True, slots=True)
class Paired:
    """The comparison of a candidate with one competitor.

    ``speedup`` is the competitor's latency divided by the candidate's: above 1 if the candidate is faster.
    ``pairs`` counts the pairs of samples.
    """

    competitor_sha256: str
    speedup: Estimate
    resolution_percent: float
    """Resolution of the clock, in percent of the faster kernel's latency."""
    pairs: int
    sessions: int = 1

    @property
    def band_percent(self) -> float:
        """Return the tie band: the two kernels tie if the speed-up is within this many percent of 1.

        The band is half the interval's width, or twice the clock's resolution if that is more.
        """
        return max(self.speedup.half_percent, 2 * self.resolution_percent)

    @property
    def win(self) -> bool:
        """Tell whether the candidate is certainly faster than the competitor.

        Three conditions must hold: the whole interval is above 1, the speed-up is beyond the tie band, and
        there are at least :data:`SESSIONS` sessions.
        """
        beyond = self.speedup.low > 1 and self.speedup.middle > 1 + self.band_percent / 100
        return beyond and self.sessions >= SESSIONS

    def plain(self) -> dict[str, object]:
        """Return the record as a dict for JSON."""
        return {
            "against": self.competitor_sha256,
            "ratio": self.speedup.middle,
            "interval": [self.speedup.low, self.speedup.high],
            "resolution_percent": self.resolution_percent,
            "band_percent": self.band_percent,
            "rounds": self.pairs,
            "sessions": self.sessions,
            "win": self.win,
        }


def median(sessions: Sequence[Sequence[float]]) -> Estimate:
    """Return the median of the sessions' medians, with its bootstrap interval.

    Equal samples give an interval of width zero.
    """
    import numpy as np

    rng = np.random.default_rng(0)
    count = len(sessions)
    within = np.empty((count, _RESAMPLES, count))
    for number, samples in enumerate(sessions):
        values = np.asarray(samples, np.float64)
        draws = rng.integers(0, len(values), (_RESAMPLES, count, len(values)))
        within[number] = np.median(values[draws], axis=2)
    chosen = rng.integers(0, count, (_RESAMPLES, count))
    drawn = within[chosen, np.arange(_RESAMPLES)[:, None], np.arange(count)]
    low, high = np.percentile(np.median(drawn, axis=1), (_LOW, _HIGH))
    return Estimate(float(np.median([np.median(samples) for samples in sessions])), float(low), float(high))


def paired(
    candidate: Sequence[Sequence[float]],
    competitor: Sequence[Sequence[float]],
    resolution: float,
    competitor_sha256: str = "",
) -> Paired:
    """Return the comparison of two kernels that were timed interleaved.

    ``candidate`` and ``competitor`` have one list of samples per session. Sample i of one kernel is divided by
    sample i of the other kernel, so that drift over time cancels out. All samples are positive and in the unit
    of ``resolution``. If one list of a session is longer, its last samples are left out. Raise ValueError if
    the numbers of sessions differ.
    """
    import numpy as np

    ratios = []
    for mine, other in zip(candidate, competitor, strict=True):
        pairs = min(len(mine), len(other))
        ratios.append((np.asarray(other[:pairs], np.float64) / np.asarray(mine[:pairs], np.float64)).tolist())
    faster = min(float(np.median([np.median(one) for one in side])) for side in (candidate, competitor))
    return Paired(competitor_sha256, median(ratios), 100 * resolution / faster, sum(map(len, ratios)), len(ratios))


def spread(samples: Sequence[float]) -> float:
    """Return the interquartile range of samples, in their unit."""
    import numpy as np

    low, high = np.percentile(np.asarray(samples, np.float64), (25, 75))
    return float(high - low)
