"""Save device time: leave a candidate unmeasured that the simulator finds clearly slower than its parent.

A tenth of such candidates is measured nevertheless, as a sample that a hash of run and source chooses. Screening was
wrong about a candidate of the sample if the candidate is faster than its parent beyond the uncertainty of their ratio.
Screening stops when it was wrong at least twice and about more than a tenth of the sample.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from acceld.evaluate.interface import EvaluationRequest
from acceld.gains import gain
from acceld.model import Profile

SAMPLE_ONE_IN = 10
LEAST_WRONG = 2
MOST_WRONG_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Choice:
    """The decision about a candidate that is predicted to be slower than its parent, beyond the uncertainty of the
    ratio of the two predictions.

    ``ratio`` is the predicted latency of the candidate divided by that of its parent. ``measured`` is True if the
    candidate belongs to the sample that is measured nevertheless.
    """

    ratio: float
    band_percent: float
    measured: bool

    def plain(self) -> dict[str, object]:
        """Return the record as data for JSON."""
        return {"predicted_ratio": self.ratio, "band_percent": self.band_percent, "measured": self.measured}


class Screen:
    """Count the decisions of screening (whether slow candidates are measured) on one backend, and end screening after
    too many errors.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self.sampled = 0
        self.wrong = 0

    @property
    def on(self) -> bool:
        """Tell whether screening may leave candidates unmeasured.

        Screening ends when too many candidates of the sample, which was measured nevertheless, turned out to be wins.
        """
        return self.wrong < LEAST_WRONG or self.wrong <= MOST_WRONG_SHARE * self.sampled

    @property
    def text(self) -> str:
        """Return the counts as text for people."""
        return f"{self.dropped} dropped, {self.sampled} measured nevertheless, {self.wrong} of the measured candidates were wins"

    def plain(self) -> dict[str, object]:
        """Return the state and the counts as data for JSON."""
        return {"on": self.on, "dropped": self.dropped, "sampled": self.sampled, "wrong": self.wrong}

    def choose(self, request: EvaluationRequest, mine: Profile, parents: Profile | None) -> Choice | None:
        """Decide whether a candidate that is predicted to be clearly slower than its parent is measured.

        Return None for any other candidate, or without a prediction: such a candidate is measured.
        """
        found = gain(parents, mine)
        if found is None or found.faster is not False or found.band_percent is None:
            return None
        digest = hashlib.sha256(f"{request.run}\0{request.kernel.sha256}".encode()).digest()
        measured = int.from_bytes(digest[:4], "big") % SAMPLE_ONE_IN == 0
        if not measured:
            self.dropped += 1
        return Choice(1.0 / found.ratio, found.band_percent, measured)

    def learn(self, latency_us: float, parent_us: float, band_percent: float) -> bool:
        """Record the measured latencies of a sampled candidate and of its parent. Return True if screening was wrong
        about the candidate: it is faster than its parent, a win that would have been lost.
        """
        self.sampled += 1
        wrong = parent_us / latency_us > 1.0 + band_percent / 100.0
        self.wrong += wrong
        return wrong
