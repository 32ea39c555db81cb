"""Screening: what the simulator finds clearly slower than its parent is not measured, save for a sample of it.

A tenth of what would be dropped, chosen by a hash of run and source, is measured all the same. Where such a kernel turns
out faster than its parent beyond the measured band, screening was wrong; when that happens too often it ends by itself.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from acceld.evaluate.interface import EvaluationRequest
from acceld.model import SIMULATED_TIE_PERCENT, Profile

SAMPLE_ONE_IN = 10
LEAST_WRONG = 2
MOST_WRONG_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Choice:
    """A candidate beyond the band: the predicted ratio to its parent, the band, and whether it is measured as a sample."""

    ratio: float
    band_percent: float
    measured: bool

    def plain(self) -> dict[str, object]:
        """As JSON-able data."""
        return {"predicted_ratio": self.ratio, "band_percent": self.band_percent, "measured": self.measured}


class Screen:
    """Counts of screening on one backend, which decide if it stays on."""

    def __init__(self) -> None:
        self.dropped = 0
        self.sampled = 0
        self.wrong = 0

    @property
    def on(self) -> bool:
        """True while it may drop candidates: off once too many of the sample were wins."""
        return self.wrong < LEAST_WRONG or self.wrong <= MOST_WRONG_SHARE * self.sampled

    @property
    def text(self) -> str:
        """Its counts, for people."""
        return f"{self.dropped} dropped, {self.sampled} measured all the same, {self.wrong} of these were wins"

    def plain(self) -> dict[str, object]:
        """As JSON-able data."""
        return {"on": self.on, "dropped": self.dropped, "sampled": self.sampled, "wrong": self.wrong}

    def choose(self, request: EvaluationRequest, mine: Profile, parents: Profile | None) -> Choice | None:
        """None for a candidate that is measured anyway: not clearly slower than its parent, or nobody knows."""
        if parents is None or not mine.latency_us or not parents.latency_us:
            return None
        ratio = mine.latency_us / parents.latency_us
        if ratio <= 1.0 + SIMULATED_TIE_PERCENT / 100.0:
            return None
        digest = hashlib.sha256(f"{request.run}\0{request.kernel.sha256}".encode()).digest()
        measured = int.from_bytes(digest[:4], "big") % SAMPLE_ONE_IN == 0
        if not measured:
            self.dropped += 1
        return Choice(ratio, SIMULATED_TIE_PERCENT, measured)

    def learn(self, latency_us: float, parent_us: float, band_percent: float) -> bool:
        """Take in the measured latencies of a sample and its parent; whether dropping it would have lost a win."""
        self.sampled += 1
        wrong = parent_us / latency_us > 1.0 + band_percent / 100.0
        self.wrong += wrong
        return wrong
