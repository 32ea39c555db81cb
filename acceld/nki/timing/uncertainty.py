"""State the uncertainty of a predicted latency.

All figures are measured, and ``scripts/evidence/bench_sim.py`` prints them. The interval of a latency is the
wider of two conformal intervals, both for kernels of the same chip with the same bottleneck:

- the interval that contains the errors of four of five development kernels,
- the interval that contains four of five chains. A chain is the set of kernels of one computation. A chain is
  contained if the interval contains the errors of four of five of its kernels.

Each of the two is the widest that all chains, or all but one of them, give. On trn2 such an interval also contains four of
five errors of a family of kernels if the rules and constants that rest on this family alone are left out.

A kernel that resembles no measured kernel has no interval. The allowed error of a ratio of two predictions is
:data:`acceld.model.SIMULATED_TIE_PERCENT`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

UNVALIDATED = "unvalidated"
MOSTLY = 0.6
"""Least share of the latency for which a kernel's busiest engine must be busy, if the kernel is to count as bound by
that engine. With less, the kernel counts as waiting.
"""


class Bound(StrEnum):
    """The class of a kernel's bottleneck. Each class has its own interval."""

    TENSOR = "tensor"
    ELEMENTWISE = "vector, scalar or gpsimd"
    DMA = "DMA"
    WAITING = "no engine for long"


INTERVALS: dict[tuple[str, Bound], tuple[float, int]] = {
    ("trn1", Bound.TENSOR): (15.0, 10),
    ("trn1", Bound.ELEMENTWISE): (23.0, 43),
    ("trn1", Bound.DMA): (35.0, 14),
    ("trn1", Bound.WAITING): (42.0, 8),
    ("trn2", Bound.TENSOR): (18.0, 33),
    ("trn2", Bound.ELEMENTWISE): (33.0, 12),
    ("trn2", Bound.DMA): (18.0, 46),
    ("trn2", Bound.WAITING): (36.0, 36),
}
"""Half the width of the 80 % interval in percent, and the number of development kernels behind the interval, by chip
and bottleneck.
"""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The uncertainty of a predicted latency: its interval, and the measured kernels from which the interval was
    computed.
    """

    kind: str
    """``predicted``, or ``data_dependent`` if there is no latency."""
    interval_percent: float | None
    """Half the width of the interval, in percent; None for a kernel that no measured kernel resembles."""
    validated_on: str
    """The measured kernels behind the interval in words, or ``unvalidated``."""
    starts_us: float | None = None
    """The time in which all transfers of the kernel can be started one after the other, if it exceeds the latency; None
    otherwise. A kernel with such a time has no interval.
    """

    @property
    def validated(self) -> bool:
        """Tell whether the latency has an interval."""
        return self.validated_on != UNVALIDATED


def bound_of(engines: Mapping[str, float], latency_us: float) -> Bound:
    """Return the class of a kernel's bottleneck, from the busy microseconds of its engines."""
    name = max(engines, key=lambda engine: engines[engine])
    if engines[name] < MOSTLY * latency_us:
        return Bound.WAITING
    return {"tensor": Bound.TENSOR, "dma": Bound.DMA}.get(name, Bound.ELEMENTWISE)


def prediction(
    *, chip: str, engines: Mapping[str, float], latency_us: float | None, unlike: bool, starts_us: float = 0.0
) -> Prediction:
    """Return the uncertainty of a predicted latency.

    ``unlike`` is True for a kernel that resembles no measured kernel: two cores, or loops or addresses known only at
    run time. ``starts_us`` is the time to start all transfers of the kernel one after the other. A kernel has no
    interval if ``unlike`` is True, if ``starts_us`` exceeds the latency, or if no kernels were measured on its chip.
    """
    if latency_us is None:
        return Prediction("data_dependent", None, UNVALIDATED)
    bound = bound_of(engines, latency_us)
    found = None if unlike else INTERVALS.get((chip, bound))
    if found is None:
        return Prediction("predicted", None, UNVALIDATED)
    if starts_us > latency_us:
        return Prediction("predicted", None, UNVALIDATED, starts_us)
    percent, kernels = found
    return Prediction("predicted", percent, f"{kernels} measured kernels on {chip} bound by {bound} (80 % interval)")
