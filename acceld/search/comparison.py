"""Compare runs: their results, their costs, and their progress at equal numbers of candidates.

Latencies are compared only between runs of one workload, chip, API, source and performance model; all other figures are only listed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from acceld.events import BeamSelected
from acceld.model import Candidate
from acceld.proposers.rules import all_rules
from acceld.search.beam import is_selectable
from acceld.search.memory import redundancy
from acceld.search.outcome import RunOutcome, Win, outcome
from acceld.search.replay import EVENTS
from acceld.search.signs import RepairRate, Sign, repair_rates, signs
from acceld.store.changes.calls import spent_by_role
from acceld.store.reads import listing, records


@dataclass(frozen=True, slots=True)
class Compared:
    """The figures of one run, for a comparison of runs."""

    outcome: RunOutcome
    strategy: str
    memory: str
    beam_width: int
    planner: bool
    calls: int
    cost_usd: float | None
    fixer_usd: float
    """Part of the cost that was spent on repairs."""
    unpriced_calls: int
    device_hours: float
    """Time of evaluating candidates, summed over devices."""
    redundancy: float
    unruled_wins: float | None
    """Share of the steps to the best kernel whose class of change is covered by no rewrite rule; None without steps."""
    progress: tuple[float, ...]
    """Best speed-up over the baseline after 1, 2, 3 ... candidates in the order of their results."""
    signs: tuple[Sign, ...]
    repairs: tuple[RepairRate, ...]

    def device_usd(self, usd_per_hour: float | None) -> float | None:
        """Return the cost of the devices in USD at a price per hour; None without a price."""
        return None if usd_per_hour is None else self.device_hours * usd_per_hour

    @property
    def usd_per_percent(self) -> float | None:
        """Return the USD spent on models for each percent of speed-up; None if the price is unknown or there is no
        speed-up.
        """
        speedup = self.outcome.speedup
        if self.cost_usd is None or speedup is None or speedup <= 1:
            return None
        return self.cost_usd / (100.0 * (speedup - 1.0))


def compared(connection: sqlite3.Connection, run: int) -> Compared:
    """Return one run's figures. Raise StoreError if no run has this number."""
    record = records.load_run(connection, run)
    candidates = records.load_candidates(connection, run, None, True)
    plans = records.load_plans(connection, run)
    attempts = [
        a for iteration in range(1, record.iteration + 1) for a in records.load_attempts(connection, run, iteration)
    ]
    insights = records.load_insights(connection, run=run)
    costs: dict[str, Any] = listing.costs(connection, run)
    events = [event.data for event in records.load_events(connection, 0, run, EVENTS)]
    beams = [data.beam for data in events if isinstance(data, BeamSelected)]
    evaluation_s = connection.execute(
        "SELECT sum(ended_at - started_at) FROM candidates WHERE run = ? AND ended_at IS NOT NULL", (run,)
    ).fetchone()[0]
    summary = outcome(record, candidates, {plan.id: plan for plan in plans}, [a for a in attempts if a.text is None])
    search = record.spec.search
    return Compared(
        outcome=summary,
        strategy=search.strategy,
        memory=search.memory,
        beam_width=search.beam_width,
        planner=search.planner,
        calls=costs["calls"],
        cost_usd=costs["cost_usd"] if costs["calls"] else 0.0,
        fixer_usd=spent_by_role(connection, run).get("fixer", 0.0),
        unpriced_calls=costs["unpriced_calls"],
        device_hours=(evaluation_s or 0.0) / 3600.0,
        redundancy=redundancy(insights),
        unruled_wins=_unruled(summary.wins),
        progress=progress(candidates),
        signs=tuple(signs(candidates, plans, attempts, beams[-1] if beams else (), insights)),
        repairs=tuple(repair_rates(candidates, {attempt.id: attempt for attempt in attempts})),
    )


def progress(candidates: Sequence[Candidate]) -> tuple[float, ...]:
    """Return the best speed-up so far after each candidate, in the order in which the candidates were written.

    The result is empty if no baseline passed.
    """
    baseline = next((c for c in candidates if c.parent is None and is_selectable(c)), None)
    if baseline is None or baseline.evaluation is None or not baseline.evaluation.latency_us:
        return ()
    best, found = 1.0, []
    for candidate in sorted((c for c in candidates if c.parent is not None), key=lambda c: c.id):
        if is_selectable(candidate) and candidate.evaluation is not None and candidate.evaluation.latency_us:
            best = max(best, baseline.evaluation.latency_us / candidate.evaluation.latency_us)
        found.append(best)
    return tuple(found)


def _unruled(wins: Sequence[Win]) -> float | None:
    ruled = {rule.change_class for rule in all_rules()}
    return sum(not win.rule and win.change_class not in ruled for win in wins) / len(wins) if wins else None


def comparable(runs: Sequence[Compared]) -> bool:
    """Return True if the latencies of the runs may be compared: same workload, chip, API, source and performance
    model.
    """
    of = (run.outcome for run in runs)
    kinds = {(one.workload, one.chip, one.api, one.source, one.model) for one in of}
    return len(kinds) <= 1
