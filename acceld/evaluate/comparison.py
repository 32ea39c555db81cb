"""Estimate a latency from samples, and compare two kernels that were timed interleaved.

Every device uses this bootstrap and this rule for a win. In a *session* each kernel runs in one process. Pages, caches
and neighboring processes stay the same in a session, so its samples agree better than samples of different sessions.
The bootstrap therefore draws sessions first, and then samples of each session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SESSIONS = 5
"""Fewest sessions for a win. The range of five medians misses the true median in one of sixteen cases."""
_RESAMPLES = 2000
_LOW, _HIGH = 2.5, 97.5


@dataclass(frozen=True, slots=True)
class Estimate:
    """Hold a median with its 95 % bootstrap interval (percentile method), in the samples' unit."""

    middle: float
    low: float
    high: float

    @property
    def half_percent(self) -> float:
        """Return half the width of the interval, in percent of the median."""
        return 100 * (self.high - self.low) / 2 / self.middle if self.middle else float("inf")


@dataclass(frozen=True, slots=True)
class Paired:
    """Compare a candidate with a competitor.

    ``speedup`` is the competitor's latency over the candidate's, above 1 if the candidate is faster.
    """

    competitor_sha256: str
    speedup: Estimate
    resolution_percent: float
    """Resolution of the clock, in percent of the faster kernel's latency."""
    pairs: int
    sessions: int = 1

    @property
    def band_percent(self) -> float:
        """Return half the width of the band around 1, in percent, in which the two kernels tie.

        It is half the interval's width, or twice the clock's resolution if that is more.
        """
        return max(self.speedup.half_percent, 2 * self.resolution_percent)

    @property
    def win(self) -> bool:
        """Return True if the candidate is certainly faster: its interval is above 1, its ratio is beyond the band, and
        the number of sessions suffices.
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
    """Return the median of the sessions' medians with its interval. Equal samples give an interval without width."""
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
    """Compare sessions of interleaved samples pair by pair, so that drift over time affects both kernels.

    All samples are positive and in the unit of ``resolution``. If one series of a session is longer, its last samples
    are left out. Raises ValueError if the numbers of sessions differ.
    """
    import numpy as np

    ratios = []
    for mine, other in zip(candidate, competitor, strict=True):
        pairs = min(len(mine), len(other))
        ratios.append((np.asarray(other[:pairs], np.float64) / np.asarray(mine[:pairs], np.float64)).tolist())
    faster = min(float(np.median([np.median(one) for one in side])) for side in (candidate, competitor))
    return Paired(competitor_sha256, median(ratios), 100 * resolution / faster, sum(map(len, ratios)), len(ratios))


def spread(samples: Sequence[float]) -> float:
    """Return the interquartile range of samples."""
    import numpy as np

    low, high = np.percentile(np.asarray(samples, np.float64), (25, 75))
    return float(high - low)
