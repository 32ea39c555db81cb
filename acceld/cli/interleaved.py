"""Measure a kernel on a device in turns with another kernel, in one session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from acceld.cli.kernels import plain
from acceld.client import Client
from acceld.gains import interleaved
from acceld.model import Evaluation, Gate, Kernel, Status
from acceld.watch.answers import evaluation_from


@dataclass(frozen=True, slots=True)
class Interleaved:
    """Speed-up of a kernel over another kernel that was timed in turns with it, and the 95 % interval.

    ``win`` is True if the whole interval is above 1, the gain exceeds half the interval's width and twice the clock's
    resolution, and there were enough sessions.
    """

    ratio: float
    low: float
    high: float
    band_percent: float
    win: bool

    @classmethod
    def from_plain(cls, raw: Mapping[str, Any]) -> Self:
        """Return the speed-up that an entry of ``paired`` in the daemon's answer states."""
        low, high = raw["interval"]
        return cls(raw["ratio"], low, high, raw["band_percent"], raw["win"])

    @property
    def text(self) -> str:
        """Return the speed-up as ``2.31x (2.28 – 2.35)``; with ``tie`` if neither kernel is faster."""
        pair = {
            "ratio": self.ratio,
            "interval": (self.low, self.high),
            "band_percent": self.band_percent,
            "win": self.win,
        }
        tie = interleaved(pair) is None
        return f"{self.ratio:.2f}x ({self.low:.2f} – {self.high:.2f})" + (" tie" if tie else "")


SAME = Interleaved(1.0, 1.0, 1.0, 0.0, win=False)
"""Result for two kernels that compile to the same program."""


def measured(
    client: Client, place: Mapping[str, str], kernel: Kernel, other: Kernel | None
) -> tuple[Evaluation, Interleaved | None]:
    """Return the daemon's evaluation of a kernel by the strict gate, and its speed-up over ``other``.

    The speed-up is None if the two kernels were not timed together. ``place`` holds workload, workload_folder,
    backend and chip.
    """
    against = [plain(other)] if other is not None else []
    asked = {**place, "gate": Gate.STRICT.value, "kernel": plain(kernel), "against": against}
    reported = client.send("POST", "/v1/evaluations", asked)
    found = evaluation_from(reported)
    if reported["paired"]:
        return found, Interleaved.from_plain(reported["paired"][0])
    if other is None or found.status is not Status.PASSED:
        return found, None
    alone = evaluation_from(client.send("POST", "/v1/evaluations", {**place, "kernel": plain(other)}))
    same = alone.status is Status.PASSED and alone.program_sha256 == found.program_sha256
    return found, SAME if same else None
