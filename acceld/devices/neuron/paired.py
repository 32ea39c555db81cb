"""Whether one kernel is faster than another: rounds of both in turn on the same core, and a bootstrap over rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from acceld.devices.neuron.runtime.timing import Round

ROUNDS = 4
"""Least number of rounds of each kernel."""
RESAMPLES = 2000
CONFIDENCE_PERCENT = 95.0
_SEED = 20_260


@dataclass(frozen=True, slots=True)
class Paired:
    """A kernel held against another. ``ratio`` is the other's latency over this one's: above 1 this one is faster."""

    other_sha256: str
    ratio: float
    low: float
    high: float
    """Limits of the interval (95 %)."""
    resolution_percent: float
    """Resolution of the method, of the faster kernel's latency."""
    rounds: int

    @property
    def band_percent(self) -> float:
        """Half width inside which the two are a tie: the interval's, or twice the resolution where that is more."""
        return max(100.0 * (self.high - self.low) / 2.0 / self.ratio, 2.0 * self.resolution_percent)

    @property
    def win(self) -> bool:
        """Whether this kernel is faster beyond the band."""
        return self.ratio > 1.0 + self.band_percent / 100.0

    def plain(self) -> dict[str, object]:
        """As JSON-able data."""
        return {
            "against": self.other_sha256,
            "ratio": self.ratio,
            "interval": [self.low, self.high],
            "resolution_percent": self.resolution_percent,
            "band_percent": self.band_percent,
            "rounds": self.rounds,
            "win": self.win,
        }


def paired(mine: Sequence[Round], others: Sequence[Round], other_sha256: str) -> Paired:
    """Hold rounds against the rounds of another kernel that alternated with them, the same number of each.

    The mean latency of whole rounds is resampled, both kernels' together, so that what drifts with time drifts in both.
    ValueError where numbers or methods differ.
    """
    if len(mine) != len(others) or not mine or {one.method for one in mine} != {one.method for one in others}:
        raise ValueError("rounds are paired one to one, by one method")
    left = np.array([float(np.mean(one.samples_us)) for one in mine])
    right = np.array([float(np.mean(one.samples_us)) for one in others])
    chosen = np.random.default_rng(_SEED).integers(0, len(left), size=(RESAMPLES, len(left)))
    ratios = right[chosen].mean(axis=1) / left[chosen].mean(axis=1)
    outside = (100.0 - CONFIDENCE_PERCENT) / 2.0
    low, high = np.percentile(ratios, (outside, 100.0 - outside))
    resolution_us = max(one.resolution_us or 0.0 for one in (*mine, *others))
    return Paired(
        other_sha256=other_sha256,
        ratio=float(right.mean() / left.mean()),
        low=float(low),
        high=float(high),
        resolution_percent=100.0 * resolution_us / float(min(left.mean(), right.mean())),
        rounds=len(left),
    )
