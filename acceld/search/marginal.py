"""What the next percent will probably cost, from what the last iterations cost and gained. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from acceld.store.changes.runs import Spent

WINDOW = 3
"""Iterations that are looked back on."""


def next_percent_usd(iterations: Sequence[Spent], device_usd_per_hour: float | None = None) -> float | None:
    """USD that the next percent of speed-up would cost if it went on as in the last ``WINDOW`` iterations.

    Infinity where money was spent and nothing gained. None where nobody can say: too few iterations, an unknown
    price, or nothing spent.
    """
    if len(iterations) < WINDOW:
        return None
    recent = iterations[-WINDOW:]
    before = iterations[-WINDOW - 1].speedup if len(iterations) > WINDOW else 1.0
    cost_usd = 0.0
    for one in recent:
        if one.cost_usd is None:
            return None
        cost_usd += one.cost_usd + one.judged_s / 3600.0 * (device_usd_per_hour or 0.0)
    if cost_usd <= 0:
        return None
    percent = 100.0 * (recent[-1].speedup / before - 1.0)
    return cost_usd / percent if percent > 0 else float("inf")
