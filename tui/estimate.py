"""Estimate a new run from earlier runs of the same workload. The functions are pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from acceld import figures
from acceld.gains import worth
from acceld.model import PRESETS, PROPOSERS


def at_most(preset: str) -> int:
    """Return the greatest number of candidates that a run with a preset can make.

    The first iteration of a run has one parent, every other iteration a full beam.
    """
    p = PRESETS[preset]
    return (1 + (p.iterations - 1) * p.beam_width) * p.plans * p.attempts


def estimate(rows: Iterable[Mapping[str, Any]], preset: str, proposer: str, chip: str) -> str:
    """Return two lines on a new run: the most candidates it can make, with time and cost, and earlier runs' gains.

    Time, cost and gains come from earlier runs with the same proposer and chip. Without such runs, the second line
    says that there are none.
    """
    most = at_most(preset)
    text = f"at most {most} candidates"
    like = [r for r in rows if r["proposer"] == proposer and r["chip"] == chip and r["candidates"]]
    ended = [r for r in like if r["started_at"] is not None and r["ended_at"] is not None]
    if not ended:
        free = ", cost unknown" if PROPOSERS[proposer].uses_models else ", no model cost"
        return f"{text}{free}\nno earlier run of this kind to estimate time and gain from"
    seconds = sorted((r["ended_at"] - r["started_at"]) / r["candidates"] for r in ended)
    text += f", about {figures.elapsed(median(seconds) * most)}"
    if not PROPOSERS[proposer].uses_models:
        text += ", no model cost"
    else:
        prices = [r["cost_usd"] / r["candidates"] for r in ended if r["cost_usd"] is not None]
        text += f", about {figures.usd(median(prices) * most)}" if prices else ", cost unknown"
    gains = sorted((r["speedup"], worth(r.get("verdict"), r["improved"])) for r in ended if r["speedup"])
    known = f"{len(ended)} earlier run{'s' if len(ended) > 1 else ''}"
    if gains:
        known += f" reached {figures.brief_gain(*gains[0])}" + (
            f" to {figures.brief_gain(*gains[-1])}" if len(gains) > 1 else ""
        )
    return f"{text}\n{known}"
