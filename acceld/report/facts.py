"""Collect what a report says about a run, through the routes of the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from acceld.events import EventKind
from acceld.report.scrub import scrubbed

Get = Callable[..., Any]
"""``get(path, **parameters)`` returns the JSON answer of a daemon, or of the read-only server over its file."""

PAGE = 500
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts that a report states about one run. ``outcome`` is the record of ``acceld optimize --json``."""

    run: Json
    outcome: Json
    candidates: Sequence[Json]
    """Rows by id, including the baseline."""
    costs: Json
    insights: Sequence[Json]
    steering: Sequence[Json]
    """Actions of people on the run: ``at``, and the ``data`` of the event."""
    best: Json | None
    baseline: Json | None

    @property
    def number(self) -> int:
        """Return the id of the run."""
        return int(self.run["id"])

    @property
    def title(self) -> str:
        """Return the report's title, such as ``silu on trn1``."""
        return f"{self.run['name'] or self.run['workload']} on {self.run['chip']}"

    @property
    def improved(self) -> bool:
        """Return True if the run has a win."""
        return bool(self.outcome["improved"])


def gather(get: Get, number: int, *, redact: bool = False) -> RunFacts:
    """Return all facts for a report on one run. ``redact`` leaves out insights, messages of failures, and what people
    wrote.
    """
    run = get(f"/v1/runs/{number}")
    rows: list[Json] = []
    while True:
        page = get(f"/v1/runs/{number}/candidates", after=rows[-1]["id"] if rows else 0, limit=PAGE)["candidates"]
        rows += page
        if len(page) < PAGE:
            break
    insights = [] if redact else get("/v1/insights", run=number, limit=PAGE)["insights"]
    steered = get(f"/v1/runs/{number}/events", kind=EventKind.STEERED.value, limit=PAGE)["events"]
    if redact:
        steered = [{"at": event["at"], "data": {"action": event["data"]["action"]}} for event in steered]
    facts = RunFacts(
        run=_clean(run),
        outcome=_clean(get(f"/v1/runs/{number}/outcome")),
        candidates=[_clean(row if not redact else {**row, "failure_message": None}) for row in rows],
        costs=get("/v1/costs", run=number),
        insights=[_clean(row) for row in insights],
        steering=[_clean(event) for event in steered],
        best=_clean(get(f"/v1/candidates/{run['best']}")) if run["best"] else None,
        baseline=_clean(get(f"/v1/candidates/{run['baseline']}")) if run["baseline"] else None,
    )
    return facts


def _clean(value: Any) -> Any:
    """Return the value without keys, tokens and home folders."""
    if isinstance(value, str):
        return scrubbed(value)
    if isinstance(value, Mapping):
        return {key: _clean(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_clean(entry) for entry in value]
    return value
