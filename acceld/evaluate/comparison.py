"""Estimate a latency from samples, and compare two kernels that were timed interleaved. There is one bootstrap and one
rule for a win. In a session each kernel runs in one process. Pages, caches and neighboring processes stay the same in a
session, so its calls agree better than calls of different sessions. The bootstrap draws sessions first and then calls
of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SESSIONS = 5
"""Fewest sessions for a win. The range of five medians misses the true one in one case of sixteen."""
_RESAMPLES = 2000
_LOW, _HIGH = 2.5, 97.5


@dataclass(frozen=True, slots=True)
class Estimate:
    """A median with its 95 % bootstrap interval (percentile method), in the samples' unit."""

    middle: float
    low: float
    high: float

    @property
    def half_percent(self) -> float:
        """Half the interval's width, in percent of the middle."""
        return 100 * (self.high - self.low) / 2 / self.middle if self.middle else float("inf")


@dataclass(frozen=True, slots=True)
class Paired:
    """Comparison of a candidate with a competitor. ``speedup`` is competitor over candidate, above 1 if the candidate
    is faster.
    """

    competitor_sha256: str
    speedup: Estimate
    resolution_percent: float
    """Resolution of the clock, in percent of the faster kernel's latency."""
    pairs: int
    sessions: int = 1

    @property
    def band_percent(self) -> float:
        """Half width of the ratio inside which the two tie: that of the interval, or twice the resolution if that is
        more.
        """
        return max(self.speedup.half_percent, 2 * self.resolution_percent)

    @property
    def win(self) -> bool:
        """True if the whole interval lies above 1, the ratio lies beyond the band, and there were enough sessions."""
        beyond = self.speedup.low > 1 and self.speedup.middle > 1 + self.band_percent / 100
        return beyond and self.sessions >= SESSIONS

    def plain(self) -> dict[str, object]:
        """Return the record as JSON-able data."""
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
    """Return the median of the medians of at least one session of samples. Equal samples give an equal interval."""
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
    """Compare sessions of interleaved samples pair by pair, so that drift over time affects both.

    All samples are positive and in the resolution's unit. Samples of a session's longer series without a partner are
    left out. ValueError if the numbers of sessions differ.
    """
    import numpy as np

    ratios = []
    for mine, other in zip(candidate, competitor, strict=True):
        pairs = min(len(mine), len(other))
        ratios.append((np.asarray(other[:pairs], np.float64) / np.asarray(mine[:pairs], np.float64)).tolist())
    faster = min(float(np.median([np.median(one) for one in side])) for side in (candidate, competitor))
    return Paired(competitor_sha256, median(ratios), 100 * resolution / faster, sum(map(len, ratios)), len(ratios))


def spread(samples: Sequence[float]) -> float:
    """Return the interquartile range."""
    import numpy as np

    low, high = np.percentile(np.asarray(samples, np.float64), (25, 75))
    return float(high - low)
