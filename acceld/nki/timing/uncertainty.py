"""How far a prediction may be off: of one latency, and of a ratio of two.

All figures are measured, and ``scripts/bench_sim.py`` prints them. The absolute interval is the 90th percentile of the
leave-one-out errors on the 14 NKIBench baselines.

Paired bands: only five pairs of versions of one kernel are public with texts and latencies of one compiler's days. The error
of their predicted speed-up was 11 % (mamba to its best version), 16 % (rope to its best version), 33 % (tutorial product, loads
taken out of a loop), 1 % and 15 % (the same, its loops blocked). Taking transfers away has the error of its own pair, and
what mixes changes can not be surer; the other classes have the second greatest error. Too few to promise more.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from acceld.model import SIMULATED_TIE_PERCENT

VALIDATED_ON = "14 NKIBench baselines, trn1, float32, neuronxcc.nki (leave-one-out)"
UNVALIDATED = "unvalidated"


class ChangeClass(StrEnum):
    """What a rewrite changed."""

    LOOP_ORDER = "loop_order"
    TILE_WIDTH = "tile_width"
    FUSION = "fusion"
    ENGINE = "engine"
    DMA = "dma"
    SPILL = "spill"
    MIXED = "mixed"


ABSOLUTE_PERCENT = 24.0
"""90th percentile of the absolute leave-one-out error on the 14 baselines."""

PAIRED_PERCENT: dict[ChangeClass, float] = {
    ChangeClass.LOOP_ORDER: 17.0,
    ChangeClass.TILE_WIDTH: 17.0,
    ChangeClass.FUSION: 17.0,
    ChangeClass.ENGINE: 17.0,
    ChangeClass.DMA: 34.0,
    ChangeClass.SPILL: 17.0,
    ChangeClass.MIXED: SIMULATED_TIE_PERCENT,
}
"""Percent by which a predicted ratio may be off."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is known about one predicted latency."""

    kind: str
    """``predicted``, or ``data_dependent`` where no number is given."""
    interval_percent: float | None
    """Plus or minus; None outside the validated set."""
    validated_on: str
    """The set the interval comes from, or ``unvalidated``."""

    @property
    def validated(self) -> bool:
        """Whether the interval holds."""
        return self.validated_on != UNVALIDATED


def prediction(*, api: str, chip: str, dtypes: frozenset[str], dynamic: bool, has_latency: bool) -> Prediction:
    """The prediction record of a program with these traits."""
    kind = "predicted" if has_latency else "data_dependent"
    inside = api == "nki_legacy" and chip == "trn1" and dtypes <= {"float32"} and not dynamic
    if inside and has_latency:
        return Prediction(kind, ABSOLUTE_PERCENT, VALIDATED_ON)
    return Prediction(kind, None, UNVALIDATED)
