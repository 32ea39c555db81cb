"""Define the events: one record type for each kind of thing that happens in the daemon.

An event is written in the same transaction as the change that it reports. The records are small: ids, names and
the figures that a screen shows, never whole sources. The store, the HTTP stream, the screens, the alerts and
the hooks use them. :func:`to_json` and :func:`from_json` define their JSON form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, get_args

import msgspec

from acceld.gains import Verdict
from acceld.model import RunState, Status


class EventKind(StrEnum):
    """Name of a kind of event, as it is stored and sent."""

    RUN_CREATED = "run_created"
    RUN_STATE = "run_state"
    ITERATION_STARTED = "iteration_started"
    TUNING = "tuning"
    PLAN_WRITTEN = "plan_written"
    ATTEMPT_FAILED = "attempt_failed"
    CANDIDATE_WRITTEN = "candidate_written"
    CANDIDATE_QUEUED = "candidate_queued"
    CANDIDATE_STARTED = "candidate_started"
    CANDIDATE_EVALUATED = "candidate_evaluated"
    BEAM_SELECTED = "beam_selected"
    BEST_CHANGED = "best_changed"
    TIMED_AGAIN = "timed_again"
    INSIGHT_WRITTEN = "insight_written"
    INSIGHT_CHANGED = "insight_changed"
    LLM_CALL_STARTED = "llm_call_started"
    LLM_CALL_FINISHED = "llm_call_finished"
    BUDGET_LEVEL = "budget_level"
    STEERED = "steered"
    DEVICE_STATE = "device_state"
    NOTICE = "notice"
    WATCH = "watch"
    DAEMON_STARTED = "daemon_started"
    DAEMON_STOPPED = "daemon_stopped"


KINDS = frozenset(EventKind)
"""All kinds of events, to test whether a text is a kind of event."""


@dataclass(frozen=True, slots=True)
class RunCreated:
    """A run was created."""

    kind: ClassVar = EventKind.RUN_CREATED
    workload: str
    chip: str
    api: str
    backend: str
    proposer: str
    preset: str = ""
    search: Mapping[str, Any] = field(default_factory=dict)
    """The search parameters by name."""
    name: str = ""


@dataclass(frozen=True, slots=True)
class RunStateChanged:
    """A run changed its state: it waits, continues or has ended."""

    kind: ClassVar = EventKind.RUN_STATE
    state: RunState
    message: str = ""


@dataclass(frozen=True, slots=True)
class IterationStarted:
    """An iteration of a run begins. Its parents are the candidates of ``beam``."""

    kind: ClassVar = EventKind.ITERATION_STARTED
    iteration: int
    beam: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Tuning:
    """Rules time kernels that they make from a candidate, to choose the plans for it.

    The event comes when the timing begins, then every few seconds, and when the timing ends.
    """

    kind: ClassVar = EventKind.TUNING
    candidate: int
    timed: int
    """Number of kernels timed so far."""
    limit: int
    """Greatest number of kernels to time."""
    elapsed_s: float
    ended: bool = False


@dataclass(frozen=True, slots=True)
class PlanWritten:
    """The proposer has written a plan for a parent."""

    kind: ClassVar = EventKind.PLAN_WRITTEN
    plan: int
    parent: int
    iteration: int
    index: int
    title: str = ""
    rule: str = ""
    partner: int | None = None


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """An attempt to carry out a plan gave no kernel."""

    kind: ClassVar = EventKind.ATTEMPT_FAILED
    plan: int
    index: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CandidateWritten:
    """A candidate's source is stored. A baseline has no parent."""

    kind: ClassVar = EventKind.CANDIDATE_WRITTEN
    candidate: int
    parent: int | None = None
    plan: int | None = None
    iteration: int = 0
    sha256: str = ""
    change: str = ""
    """The parameter by which the candidate differs from the plan's other attempts, such as ``4096 columns``."""


@dataclass(frozen=True, slots=True)
class CandidateQueued:
    """A candidate waits for a device."""

    kind: ClassVar = EventKind.CANDIDATE_QUEUED
    candidate: int


@dataclass(frozen=True, slots=True)
class CandidateStarted:
    """A candidate's evaluation began."""

    kind: ClassVar = EventKind.CANDIDATE_STARTED
    candidate: int
    device: str = ""


@dataclass(frozen=True, slots=True)
class CandidateEvaluated:
    """A candidate has a result. The event comes again when the candidate passes the next gate."""

    kind: ClassVar = EventKind.CANDIDATE_EVALUATED
    candidate: int
    evaluation: int
    status: Status
    latency_us: float | None = None
    percent_of_peak: float | None = None
    percent_of_attainable: float | None = None
    speedup: float | None = None
    """Speed-up over the baseline."""
    failure: str | None = None
    gate: str | None = None
    bound: str = ""
    source: str | None = None
    """Origin of the latency: ``simulated`` or ``measured``."""
    improved: bool | None = None
    """True if the candidate is faster than the baseline beyond a tie; None if the two are not compared."""
    parent_improved: bool | None = None
    """True if the candidate is faster than its parent beyond a tie; None if the two are not compared."""
    verdict: Verdict | None = None
    """Worth of the speed-up over the baseline: certain, likely, a tie or slower; None without a speed-up."""
    parent_verdict: Verdict | None = None
    """Judgement of the speed-up over the parent; None without such a speed-up."""


@dataclass(frozen=True, slots=True)
class BeamSelected:
    """An iteration of a run ended. ``beam`` are the parents of the next iteration."""

    kind: ClassVar = EventKind.BEAM_SELECTED
    iteration: int
    beam: tuple[int, ...]
    best: int
    best_latency_us: float | None = None
    speedup: float | None = None


@dataclass(frozen=True, slots=True)
class BestChanged:
    """A run has a new best candidate."""

    kind: ClassVar = EventKind.BEST_CHANGED
    candidate: int
    latency_us: float | None = None
    speedup: float | None = None
    percent_of_peak: float | None = None
    source: str | None = None
    improved: bool | None = None
    """True if the new best candidate is faster than the baseline beyond a tie."""
    verdict: Verdict | None = None
    """Judgement of the speed-up over the baseline; None without a speed-up."""


@dataclass(frozen=True, slots=True)
class TimedAgain:
    """All kernels of a run were timed again, because something that its latencies depend on has changed, such
    as the performance model.

    Events with the new results follow. Earlier results of the run do not count.
    """

    kind: ClassVar = EventKind.TIMED_AGAIN
    candidates: int
    text: str


@dataclass(frozen=True, slots=True)
class InsightWritten:
    """The memory has a new insight."""

    kind: ClassVar = EventKind.INSIGHT_WRITTEN
    insight: int
    title: str
    insight_kind: str
    """Kind of the insight; its key in JSON is ``kind``."""
    speedup: float


@dataclass(frozen=True, slots=True)
class InsightChanged:
    """An insight was pinned, muted, edited, deleted, withdrawn, or confirmed by another rewrite."""

    kind: ClassVar = EventKind.INSIGHT_CHANGED
    insight: int
    what: str


@dataclass(frozen=True, slots=True)
class LlmCallStarted:
    """A call of a model began."""

    kind: ClassVar = EventKind.LLM_CALL_STARTED
    call: int
    role: str
    model: str


@dataclass(frozen=True, slots=True)
class LlmCallFinished:
    """A model answered or failed. ``cost_usd`` is None if no price is known."""

    kind: ClassVar = EventKind.LLM_CALL_FINISHED
    call: int
    role: str
    model: str
    outcome: str
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    latency_s: float | None = None


@dataclass(frozen=True, slots=True)
class BudgetLevel:
    """Spending reached 50, 80 or 100 % of a cap."""

    kind: ClassVar = EventKind.BUDGET_LEVEL
    scope: str
    spent_usd: float
    cap_usd: float
    percent: float


REFUSED = "refused: "
"""Beginning of the result of an action that was not carried out."""


@dataclass(frozen=True, slots=True)
class Steered:
    """A person's action on a run was carried out or refused.

    In the JSON form, the entries of ``arguments`` stand beside the record's other keys, and not in an object of their
    own.
    """

    kind: ClassVar = EventKind.STEERED
    action: str
    by: str = ""
    result: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeviceState:
    """A device became available, was removed, or went out of service."""

    kind: ClassVar = EventKind.DEVICE_STATE
    device: str
    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """A message for a person. ``level`` is info, warning or error."""

    kind: ClassVar = EventKind.NOTICE
    level: str
    text: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Watch:
    """A saved file of settings, prompts or workloads was taken into use or refused."""

    kind: ClassVar = EventKind.WATCH
    path: str
    stage: str
    text: str = ""
    good: bool = True


@dataclass(frozen=True, slots=True)
class DaemonStarted:
    """The daemon has started and answers requests."""

    kind: ClassVar = EventKind.DAEMON_STARTED
    version: str
    pid: int
    sandbox_level: str = ""


@dataclass(frozen=True, slots=True)
class DaemonStopped:
    """The daemon is about to end."""

    kind: ClassVar = EventKind.DAEMON_STOPPED
    reason: str


EventData = (
    RunCreated
    | RunStateChanged
    | IterationStarted
    | Tuning
    | PlanWritten
    | AttemptFailed
    | CandidateWritten
    | CandidateQueued
    | CandidateStarted
    | CandidateEvaluated
    | BeamSelected
    | BestChanged
    | TimedAgain
    | InsightWritten
    | InsightChanged
    | LlmCallStarted
    | LlmCallFinished
    | BudgetLevel
    | Steered
    | DeviceState
    | Notice
    | Watch
    | DaemonStarted
    | DaemonStopped
)
_RECORDS: Mapping[str, type[EventData]] = {record.kind: record for record in get_args(EventData)}


@dataclass(frozen=True, slots=True)
class Event:
    """One event of the history. ``seq`` is its row id (0 before it is stored). ``run`` is None for an event
    that belongs to no run.
    """

    data: EventData
    run: int | None = None
    seq: int = 0
    at: float = 0.0
    """Seconds since the epoch."""

    @property
    def kind(self) -> EventKind:
        """Return the kind of the event, by the type of ``data``."""
        return self.data.kind


def to_json(data: EventData) -> dict[str, Any]:
    """Return an event's data as an object for JSON. The object does not have the event's kind."""
    made: dict[str, Any] = msgspec.to_builtins(data)
    match data:
        case Steered():
            made |= made.pop("arguments")
        case InsightWritten():
            made = {"kind" if name == "insight_kind" else name: value for name, value in made.items()}
    return made


def from_json(kind: str, raw: Mapping[str, Any]) -> EventData:
    """Return the record of an event of ``kind`` from its JSON form. Unknown keys are ignored.

    Raise ValueError for an unknown kind, and for a value of the wrong type.
    """
    if kind == EventKind.STEERED:
        known = ("action", "by", "result")
        own = {name: value for name, value in raw.items() if name not in known}
        raw = {name: value for name, value in raw.items() if name in known} | {"arguments": own}
    elif kind == EventKind.INSIGHT_WRITTEN:
        raw = {**raw, "insight_kind": raw.get("kind")}
    try:
        return msgspec.convert(raw, _RECORDS[kind])
    except (KeyError, msgspec.ValidationError) as error:
        raise ValueError(f"the data {dict(raw)!r} are no event of kind {kind!r}: {error}") from error


def event_json(event: Event) -> dict[str, Any]:
    """Return an event as the JSON object that clients get, with its kind and number."""
    return {"seq": event.seq, "at": event.at, "kind": event.kind, "run": event.run, "data": to_json(event.data)}


def event_of(row: Mapping[str, Any]) -> Event:
    """Return the event of a JSON object that a client got. Raise ValueError for an unknown kind."""
    return Event(from_json(row["kind"], row.get("data") or {}), row.get("run"), row["seq"], row.get("at") or 0.0)
