"""Uncertainty of predictions: of one latency, and of a ratio of two.

All figures are measured, and ``scripts/bench_sim.py`` prints them. The interval of a latency holds four of five development
kernels of the same chip that wait for the same thing, and four of five chains of kernels of one computation, each with four of
five of its kernels, as conformal intervals do: the wider of the two. A kernel that resembles no measured one has no interval.

Paired bands: of 277 pairs of one chain whose predicted ratio exceeds 17 %, 275 were measured in that order (99 %), of the
205 beyond 34 % all. Transfers taken away had the greatest error of the five published pairs of versions (33 %), and what
mixes changes can not be surer; those two classes have the wider band.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from acceld.model import SIMULATED_TIE_PERCENT

UNVALIDATED = "unvalidated"
MOSTLY = 0.6
"""Least busy share of the busiest engine at which a kernel counts as bound by it; below, it counts as waiting."""


class Bound(StrEnum):
    """The class of bottleneck; each class has its own interval."""

    TENSOR = "tensor"
    ELEMENTWISE = "vector, scalar or gpsimd"
    DMA = "DMA"
    WAITING = "no engine for long"


class ChangeClass(StrEnum):
    """Class of a rewrite by what it changed."""

    LOOP_ORDER = "loop_order"
    TILE_WIDTH = "tile_width"
    FUSION = "fusion"
    ENGINE = "engine"
    DMA = "dma"
    SPILL = "spill"
    MIXED = "mixed"


INTERVALS: dict[tuple[str, Bound], tuple[float, int]] = {
    ("trn1", Bound.TENSOR): (18.0, 10),
    ("trn1", Bound.ELEMENTWISE): (23.0, 43),
    ("trn1", Bound.DMA): (35.0, 14),
    ("trn1", Bound.WAITING): (42.0, 8),
    ("trn2", Bound.TENSOR): (15.0, 29),
    ("trn2", Bound.ELEMENTWISE): (32.0, 12),
    ("trn2", Bound.DMA): (20.0, 36),
    ("trn2", Bound.WAITING): (36.0, 10),
}
"""Half width in percent of the 80 % interval, and the development kernels it rests on."""

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
    """One predicted latency with its interval and what it rests on."""

    kind: str
    """``predicted``, or ``data_dependent`` where no number is given."""
    interval_percent: float | None
    """Plus or minus; None outside the validated set."""
    validated_on: str
    """The set the interval comes from, or ``unvalidated``."""

    @property
    def validated(self) -> bool:
        """Return whether the interval holds."""
        return self.validated_on != UNVALIDATED


def bound_of(engines: Mapping[str, float], latency_us: float) -> Bound:
    """Return the class of the engine that bounds a kernel, from the busy microseconds of its engines."""
    name = max(engines, key=lambda engine: engines[engine])
    if engines[name] < MOSTLY * latency_us:
        return Bound.WAITING
    return {"tensor": Bound.TENSOR, "dma": Bound.DMA}.get(name, Bound.ELEMENTWISE)


def prediction(*, chip: str, engines: Mapping[str, float], latency_us: float | None, dynamic: bool) -> Prediction:
    """Return the interval of a latency, or that it has none: of a chip or with run-time loops that no measured kernel
    has.
    """
    if latency_us is None:
        return Prediction("data_dependent", None, UNVALIDATED)
    bound = bound_of(engines, latency_us)
    found = None if dynamic else INTERVALS.get((chip, bound))
    if found is None:
        return Prediction("predicted", None, UNVALIDATED)
    percent, kernels = found
    return Prediction("predicted", percent, f"{kernels} measured kernels on {chip} bound by {bound} (80 % interval)")
