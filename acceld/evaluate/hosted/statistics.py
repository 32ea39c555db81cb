"""What samples of a latency say: a middle, an interval, and by how much one kernel beats another."""

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
    """Ratio rival : candidate of interleaved calls (> 1: the candidate is faster), and whether that is a win."""

    speedup: Estimate
    resolution_percent: float
    """Resolution of the clock, of the candidate's latency."""
    rounds: int

    @property
    def band_percent(self) -> float:
        """Half width inside which the two are a tie: the interval's, or twice the resolution where that is more."""
        return max(self.speedup.half_percent, 2 * self.resolution_percent)

    @property
    def win(self) -> bool:
        """Whether the candidate is faster beyond the band."""
        return self.speedup.low > 1 and self.speedup.middle > 1 + self.band_percent / 100

    def plain(self, against: str) -> dict[str, object]:
        """As JSON-able data; ``against`` is the rival's hash."""
        return {
            "against": against,
            "ratio": self.speedup.middle,
            "interval": [self.speedup.low, self.speedup.high],
            "resolution_percent": self.resolution_percent,
            "band_percent": self.band_percent,
            "rounds": self.rounds,
            "win": self.win,
        }


def median(samples: Sequence[float], seed: int = 0) -> Estimate:
    """The median of at least one sample."""
    values = np.asarray(samples, np.float64)
    rng = np.random.default_rng(seed)
    middles = np.median(values[rng.integers(0, len(values), (_RESAMPLES, len(values)))], axis=1)
    low, high = np.percentile(middles, (_LOW, _HIGH))
    return Estimate(float(np.median(values)), float(low), float(high))


def paired(rival: Sequence[float], candidate: Sequence[float], resolution: float, seed: int = 0) -> Paired:
    """Two kernels' interleaved calls compared, pair by pair; all samples positive and in the resolution's unit."""
    count = min(len(rival), len(candidate))
    ratios = np.asarray(rival[:count], np.float64) / np.asarray(candidate[:count], np.float64)
    percent = 100 * resolution / float(np.median(candidate))
    return Paired(median(ratios.tolist(), seed), percent, count)


def spread(samples: Sequence[float]) -> float:
    """Distance between the quartiles."""
    low, high = np.percentile(np.asarray(samples, np.float64), (25, 75))
    return float(high - low)
