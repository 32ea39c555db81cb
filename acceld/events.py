"""What happens, as rows: each event is written in the transaction of the change it tells of, then published.

``data`` is JSON-able and small: ids, names and the figures a screen shows, never whole sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class EventKind(StrEnum):
    """Every kind of event, with what its ``data`` holds."""

    RUN_CREATED = "run_created"
    """workload, chip, api, backend, proposer, preset, search"""
    RUN_STATE = "run_state"
    """state, message"""
    ITERATION_STARTED = "iteration_started"
    """iteration, beam (candidate ids)"""
    PLAN_WRITTEN = "plan_written"
    """plan, parent, iteration, index, title, rule"""
    ATTEMPT_FAILED = "attempt_failed"
    """plan, index, reason"""
    CANDIDATE_WRITTEN = "candidate_written"
    """candidate, parent, plan, iteration, sha256"""
    CANDIDATE_QUEUED = "candidate_queued"
    """candidate"""
    CANDIDATE_STARTED = "candidate_started"
    """candidate, device"""
    CANDIDATE_EVALUATED = "candidate_evaluated"
    """candidate, evaluation, status, latency_us, percent_of_peak, percent_of_attainable, speedup, failure, gate, bound,
    source (of the latency: simulated or measured)"""
    BEAM_SELECTED = "beam_selected"
    """iteration, beam (candidate ids), best, best_latency_us, speedup"""
    BEST_CHANGED = "best_changed"
    """candidate, latency_us, speedup, percent_of_peak, source"""
    INSIGHT_WRITTEN = "insight_written"
    """insight, title, kind, speedup"""
    INSIGHT_CHANGED = "insight_changed"
    """insight, what (pinned, muted, edited, deleted, withdrawn)"""
    LLM_CALL_STARTED = "llm_call_started"
    """call, role, model"""
    LLM_CALL_FINISHED = "llm_call_finished"
    """call, role, model, outcome, input_tokens, output_tokens, cost_usd, latency_s"""
    BUDGET_LEVEL = "budget_level"
    """scope, spent_usd, cap_usd, percent"""
    STEERED = "steered"
    """action, by, and the action's own arguments"""
    DEVICE_STATE = "device_state"
    """device, state, reason"""
    NOTICE = "notice"
    """level (info, warning, error), text, hint"""
    WATCH = "watch"
    """path, stage, and the stage's own figures"""
    DAEMON_STARTED = "daemon_started"
    """version, pid, sandbox_level"""
    DAEMON_STOPPED = "daemon_stopped"
    """reason"""


@dataclass(frozen=True, slots=True)
class Event:
    """One event. ``seq`` is its row id (0 before it is stored), ``run`` None for the daemon's own."""

    kind: EventKind
    run: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    seq: int = 0
    at: float = 0.0
    """Seconds since the epoch."""


def event_of(row: Mapping[str, Any]) -> Event:
    """An event from its JSON form. ValueError for a kind that this version does not know."""
    return Event(EventKind(row["kind"]), row.get("run"), row.get("data") or {}, row["seq"], row.get("at") or 0.0)
