"""Summarize samples (evaluated kernels) of several workloads: share correct, share fast, mean and greatest
speed-up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

ALL = "all"


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures over groups of samples of one workload, or of all workloads.

    A group is correct if one of its samples passed. Its speed-up is that of its fastest correct sample.
    """

    name: str
    problems: int
    """Number of groups."""
    correct_percent: float
    fast_percent: float
    """Percentage of groups whose best sample is correct and at least as fast as the baseline."""
    mean_speedup: float | None
    """Mean speed-up of the correct groups; None if no group is correct."""
    greatest_speedup: float | None
    source: str
    """``simulated``, ``measured``, or both."""


def summaries(records: Sequence[Mapping[str, Any]], best_of: int) -> list[Summary]:
    """Return a summary for each workload; then, if there are several, one over all. Each group has ``best_of``
    samples.
    """
    by_workload: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for record in records:
        by_workload[record["workload"]].append(record)
    groups = {
        name: [found[i : i + best_of] for i in range(0, len(found), best_of)] for name, found in by_workload.items()
    }
    rows = [_summary(name, found) for name, found in groups.items()]
    if len(rows) > 1:
        rows.append(_summary(ALL, [group for found in groups.values() for group in found]))
    return rows


def _summary(name: str, groups: Sequence[Sequence[Mapping[str, Any]]]) -> Summary:
    passed = [[one for one in group if one.get("status") == "passed"] for group in groups]
    correct = [group for group in passed if group]
    best = [max((one["speedup"] for one in group if one["speedup"]), default=None) for group in correct]
    known = [speedup for speedup in best if speedup is not None]
    sources = sorted({one["source"] for group in correct for one in group})
    return Summary(
        name=name,
        problems=len(groups),
        correct_percent=100.0 * len(correct) / len(groups),
        fast_percent=100.0 * sum(speedup >= 1.0 for speedup in known) / len(groups),
        mean_speedup=fmean(known) if known else None,
        greatest_speedup=max(known, default=None),
        source=" and ".join(sources),
    )
