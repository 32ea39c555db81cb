"""Estimate a latency from samples, and compare two kernels that were timed interleaved: one bootstrap, one rule for a win."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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
    """A candidate compared with a competitor. ``speedup`` is competitor : candidate, above 1 where the candidate is faster."""

    competitor_sha256: str
    speedup: Estimate
    resolution_percent: float
    """Resolution of the clock, in percent of the faster kernel's latency."""
    pairs: int

    @property
    def band_percent(self) -> float:
        """Half width inside which the two are a tie: the interval's, or twice the resolution where that is more."""
        return max(self.speedup.half_percent, 2 * self.resolution_percent)

    @property
    def win(self) -> bool:
        """True where the whole interval lies above 1 and the ratio beyond the band."""
        return self.speedup.low > 1 and self.speedup.middle > 1 + self.band_percent / 100

    def plain(self) -> dict[str, object]:
        """Return it as JSON-able data."""
        return {
            "against": self.competitor_sha256,
            "ratio": self.speedup.middle,
            "interval": [self.speedup.low, self.speedup.high],
            "resolution_percent": self.resolution_percent,
            "band_percent": self.band_percent,
            "rounds": self.pairs,
            "win": self.win,
        }


def median(samples: Sequence[float]) -> Estimate:
    """Return the median of at least one sample. The same samples give the same interval."""
    values = np.asarray(samples, np.float64)
    rng = np.random.default_rng(0)
    middles = np.median(values[rng.integers(0, len(values), (_RESAMPLES, len(values)))], axis=1)
    low, high = np.percentile(middles, (_LOW, _HIGH))
    return Estimate(float(np.median(values)), float(low), float(high))


def paired(
    candidate: Sequence[float], competitor: Sequence[float], resolution: float, competitor_sha256: str = ""
) -> Paired:
    """Compare interleaved samples pair by pair, so that what drifts with time drifts in both.

    All samples are positive and in the resolution's unit; those of the longer series without a partner are left out.
    """
    pairs = min(len(candidate), len(competitor))
    ratios = np.asarray(competitor[:pairs], np.float64) / np.asarray(candidate[:pairs], np.float64)
    faster = min(float(np.median(candidate)), float(np.median(competitor)))
    return Paired(competitor_sha256, median(ratios.tolist()), 100 * resolution / faster, pairs)


def spread(samples: Sequence[float]) -> float:
    """Return the distance between the quartiles."""
    low, high = np.percentile(np.asarray(samples, np.float64), (25, 75))
    return float(high - low)
