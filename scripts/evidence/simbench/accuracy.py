"""Measure the accuracy of the performance model: predictions against published measurements."""

from __future__ import annotations

import math
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from acceld.nki.ir.operations import DTYPE_BYTES
from acceld.nki.ir.program import Program
from acceld.nki.timing.parameters import CURRENT, CURRENT_TRN1, FITTED, LEGACY, LEGACY_LATER, TimelineParams
from acceld.nki.timing.timeline import Timeline, timeline
from acceld.roofline import roofline_us
from acceld.workloads.discovery import workload
from scripts.evidence.simbench.kernels import Case
from scripts.evidence.simbench.tables import Table

COUNTERS: Mapping[str, tuple[str, str, float]] = {
    "HBM read": ("hbm_read_bytes", "hbm_read_bytes", 10),
    "HBM written": ("hbm_write_bytes", "hbm_write_bytes", 10),
    "hardware FLOPs": ("hardware_flops", "hardware_flops", 1),
    "vector busy": ("vector", "vector_engine_active_time_percent", 10),
    "scalar busy": ("scalar", "scalar_engine_active_time_percent", 20),
}
"""By title: acceld's name of a counter, the profiler's name of the same counter, and the allowed difference in percent.
"""
IDLE_US = 10.0
"""Least measured busy time of a vector engine, in microseconds, that is compared. Shorter times are mostly the
profiler's own instructions.
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A case with the timeline that the performance model computed for it."""

    case: Case
    line: Timeline
    timeline_s: float

    @property
    def latency_us(self) -> float:
        """Return the predicted latency in microseconds."""
        assert self.line.latency_us is not None
        return self.line.latency_us

    @property
    def measured_us(self) -> float:
        """Return the published latency in microseconds."""
        return 1000 * self.case.measured["latency_ms"]

    @property
    def ratio(self) -> float:
        """Return predicted over measured latency."""
        return self.latency_us / self.measured_us

    def counter_ratio(self, ours: str, theirs: str) -> float | None:
        """Return the predicted counter ``ours`` over the measured counter ``theirs``; None if that was not
        measured, or is too small.
        """
        measured = self.case.measured.get(theirs)
        if not measured:
            return None
        if not theirs.endswith("percent"):
            return float(getattr(self.line, ours)) / measured
        busy_us = measured * self.measured_us
        return self.line.engines[ours] / busy_us if busy_us > (IDLE_US if ours == "vector" else 0.0) else None


def run(case: Case, params: TimelineParams = LEGACY) -> Outcome:
    """Compute the timeline of a case with the model's parameters ``params``."""
    started = time.process_time()
    line = timeline(case.program, params)
    return Outcome(case, replace(line, machine=None, schedule=None), time.process_time() - started)


def leave_one_out(ratios: Sequence[float]) -> list[float]:
    """Return the signed error of each ratio after one scale is fitted to the other ratios (their median, in
    logarithms).
    """
    errors = []
    for position, ratio in enumerate(ratios):
        others = [math.log(r) for i, r in enumerate(ratios) if i != position]
        errors.append(ratio / math.exp(statistics.median(others)) - 1)
    return errors


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation of two lists, equal values at their mean rank; None if a list has only
    one distinct value.
    """
    if len(set(a)) < 2 or len(set(b)) < 2:
        return None
    return statistics.correlation(_ranks(a), _ranks(b))


def _ranks(values: Sequence[float]) -> list[float]:
    places: dict[float, list[int]] = defaultdict(list)
    for place, value in enumerate(sorted(values)):
        places[value].append(place)
    return [statistics.mean(places[value]) for value in values]


def percent(part: float, digits: int = 1) -> float:
    """Return a share in percent, rounded."""
    return round(100 * part, digits)


def latency_table(outcomes: Sequence[Outcome]) -> Table:
    """Return a row for each kernel: predicted and measured latency, and the seconds that the prediction took."""
    errors = leave_one_out([o.ratio for o in outcomes])
    return [
        {
            "kernel": o.case.name,
            "predicted ms": round(o.latency_us / 1000, 3),
            "measured ms": round(o.measured_us / 1000, 3),
            "ratio": round(o.ratio, 3),
            "left out %": percent(error),
            "bound": o.line.bound,
            "trace CPU s": round(o.case.trace_s, 2),
            "timeline CPU s": round(o.timeline_s, 2),
        }
        for o, error in zip(outcomes, errors, strict=True)
    ]


def _errors(predicted: Sequence[float], measured: Sequence[float]) -> dict[str, float]:
    ratios = [p / m for p, m in zip(predicted, measured, strict=True)]
    errors = sorted(map(abs, leave_one_out(ratios)))
    return {
        "Spearman": round(rank_correlation(predicted, measured) or 0.0, 3),
        "in-sample MAPE %": percent(statistics.mean(abs(r - 1) for r in ratios)),
        "leave-one-out MAPE %": percent(statistics.mean(errors)),
        "median %": percent(statistics.median(errors)),
        "90th percentile %": percent(errors[math.ceil(0.9 * len(errors)) - 1]),
        "worst %": percent(errors[-1]),
    }


def summary_table(outcomes: Sequence[Outcome]) -> Table:
    """Return a table of one row with the figures over all kernels."""
    found = _errors([o.latency_us for o in outcomes], [o.measured_us for o in outcomes])
    return [{"kernels": len(outcomes), **found}]


def counter_table(outcomes: Sequence[Outcome]) -> Table:
    """Return predicted over measured counters, a row for each kernel."""
    table: Table = []
    for outcome in outcomes:
        ratios = {label: outcome.counter_ratio(ours, theirs) for label, (ours, theirs, _) in COUNTERS.items()}
        table.append({"kernel": outcome.case.name} | {k: "-" if r is None else round(r, 3) for k, r in ratios.items()})
    return table


def goal_table(outcomes: Sequence[Outcome]) -> Table:
    """Return, for each counter, how many kernels are within its allowed difference."""
    table = []
    for label, (ours, theirs, limit) in COUNTERS.items():
        ratios = [r for r in (o.counter_ratio(ours, theirs) for o in outcomes) if r is not None]
        within = sum(abs(r - 1) <= limit / 100 for r in ratios)
        table.append({"counter": label, "within %": limit, "kernels": f"{within} of {len(ratios)}"})
    return table


def ablation_table(outcomes: Sequence[Outcome]) -> Table:
    """Return the errors of predictions with one part of the model left out at a time."""
    plain = replace(LEGACY, value_numbering=False, fuse_loops=False, spills=False, eliminate_dead=False)
    models: dict[str, list[float]] = {
        "roofline of declared work": [roofline_us(workload(o.case.name), "trn1") or 0.0 for o in outcomes],
        "busiest engine, kernel as written": [max(run(o.case, plain).line.engines.values()) for o in outcomes],
        "busiest engine, compiler effects": [max(o.line.engines.values()) for o in outcomes],
        "full model": [o.latency_us for o in outcomes],
    }
    measured = [o.measured_us for o in outcomes]
    columns = ("Spearman", "in-sample MAPE %", "leave-one-out MAPE %", "worst %")
    found = {name: _errors(predicted, measured) for name, predicted in models.items()}
    return [{"model": name, **{column: errors[column] for column in columns}} for name, errors in found.items()]


def fitted_table() -> Table:
    """Return the fitted constants: the value of each in each set of parameters, and the data that it was fitted
    to.
    """
    records = {
        "legacy, trn1": LEGACY,
        "legacy, later chips": LEGACY_LATER,
        "current": CURRENT,
        "current, trn1": CURRENT_TRN1,
    }
    return [
        {
            "constant": name,
            **{label: getattr(one, name) for label, one in records.items()},
            "meaning, and measurements": source,
        }
        for name, source in FITTED.items()
    ]


FACTORS = (0.8, 1.2)


def changes(programs: Iterable[Program], params: TimelineParams = LEGACY) -> dict[str, TimelineParams]:
    """Return parameters with one fitted constant lower, or higher, for each constant that can change a ratio of
    latencies.

    ``latency_scale`` changes all latencies alike, so it is left out; ``narrow_transfer_factor`` matters only
    for programs with 16-bit data.
    """
    inert = {"latency_scale"}
    if not any(DTYPE_BYTES[buffer.dtype] == 2 for program in programs for buffer in program.buffers):
        inert.add("narrow_transfer_factor")
    return {
        f"{name} x{factor}": params.with_scaled(name, factor)
        for name in FITTED
        if name not in inert
        for factor in FACTORS
    }
