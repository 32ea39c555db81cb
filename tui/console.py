"""Everything outside one run: the list of runs, devices, the queue, the log. A fold over all events, in order.

An event at or below ``seq`` has been taken in and changes nothing, so a backlog may be played again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from acceld.events import Event, EventKind
from acceld.tui.state import Recent, RunView

KEPT_LOG = 2_000
KEPT_VIEWS = 4
KEPT_RUNS = 1_000


@dataclass(slots=True)
class RunRow:
    """A line of the list of runs."""

    id: int
    workload: str = ""
    name: str = ""
    chip: str = ""
    api: str = ""
    backend: str = "simulator"
    proposer: str = ""
    preset: str = ""
    state: str = "queued"
    message: str = ""
    iteration: int = 0
    iterations: int = 0
    baseline_us: float | None = None
    best_us: float | None = None
    speedup: float | None = None
    percent_of_peak: float | None = None
    candidates: int = 0
    passed: int = 0
    cost_usd: float | None = None
    created_at: float = 0.0
    ended_at: float | None = None
    source: str = "simulated"
    """``simulated`` or ``measured``: what the evaluation of the best says."""


@dataclass(slots=True)
class DeviceRow:
    """One device and what it does."""

    name: str
    state: str = "idle"
    reason: str = ""
    run: int | None = None
    candidate: int | None = None
    since: float = 0.0
    done: int = 0


@dataclass(slots=True)
class ConsoleView:
    """All runs and the daemon itself. ``dirty`` names what changed since a screen last looked."""

    seq: int = 0
    runs: dict[int, RunRow] = field(default_factory=dict)
    views: OrderedDict[int, RunView] = field(default_factory=OrderedDict)
    """The runs that a screen has opened, newest use last."""
    devices: dict[str, DeviceRow] = field(default_factory=dict)
    queue: OrderedDict[int, tuple[int | None, float]] = field(default_factory=OrderedDict)
    """Run and time of queueing by candidate, in order of arrival."""
    log: Recent = field(default_factory=lambda: Recent(KEPT_LOG))
    watched: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    budgets: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    now: float = 0.0
    """Time of the newest event, seconds since the epoch."""
    dirty: set[str] = field(default_factory=set)

    def open(self, run: int) -> RunView:
        """The view of a run; the ones used longest ago are forgotten."""
        view = self.views.pop(run, None) or RunView(run)
        self.views[run] = view
        while len(self.views) > KEPT_VIEWS:
            self.views.popitem(last=False)
        return view

    def load_run(self, row: Mapping[str, Any], spec: Mapping[str, Any]) -> RunRow:
        """A run's row from the daemon; ``spec`` holds workload, chip, api, backend, proposer, preset, search."""
        search = spec.get("search") or {}
        made = RunRow(
            id=row["id"],
            workload=spec.get("workload") or "",
            name=spec.get("name") or "",
            chip=spec.get("chip") or "",
            api=spec.get("api") or "",
            backend=spec.get("backend") or "simulator",
            proposer=spec.get("proposer") or "",
            preset=spec.get("preset") or "",
            state=row.get("state") or "queued",
            message=row.get("message") or "",
            iteration=row.get("iteration") or 0,
            iterations=row.get("iterations") or search.get("iterations") or 0,
            baseline_us=row.get("baseline_latency_us"),
            best_us=row.get("best_latency_us"),
            speedup=row.get("speedup"),
            percent_of_peak=row.get("percent_of_peak_after"),
            candidates=row.get("candidates") or 0,
            passed=row.get("passed") or 0,
            cost_usd=row.get("cost_usd"),
            created_at=row.get("created_at") or 0.0,
            ended_at=row.get("ended_at"),
            source=row.get("source") or "simulated",
        )
        self.runs[made.id] = made
        if len(self.runs) > KEPT_RUNS:
            del self.runs[min(self.runs)]
        self.dirty.add("runs")
        return made

    def remember(self, event: Event) -> None:
        """Put an event of the past into the log only; what it changed is in the rows."""
        self.log.add(event)
        self.now = max(self.now, event.at)

    def apply(self, event: Event) -> bool:
        """Take one event in; False where it had been before."""
        if event.seq <= self.seq:
            return False
        self.seq = event.seq
        self.now = max(self.now, event.at)
        self.log.add(event)
        self.dirty.add("log")
        if event.run is not None:
            view = self.views.get(event.run)
            if view is not None and view.apply(event):
                self.dirty.add(f"run {event.run}")
            self._row(event, event.run)
        self._devices(event)
        if event.kind is EventKind.BUDGET_LEVEL:
            self.budgets[str(event.data.get("scope"))] = event.data
        elif event.kind is EventKind.WATCH:
            self.watched[str(event.data.get("path"))] = event.data
        elif event.kind in (EventKind.INSIGHT_WRITTEN, EventKind.INSIGHT_CHANGED):
            self.dirty.add("insights")
        return True

    def _row(self, event: Event, run: int) -> None:
        row, data = self.runs.get(run), event.data
        if event.kind is EventKind.RUN_CREATED:
            row = self.load_run({"id": run, "created_at": event.at}, data)
        if row is None:
            return
        match event.kind:
            case EventKind.RUN_STATE:
                row.state, row.message = data["state"], data.get("message") or ""
                if row.state in ("finished", "cancelled", "failed"):
                    row.ended_at = event.at
            case EventKind.ITERATION_STARTED:
                row.iteration = data["iteration"]
            case EventKind.CANDIDATE_WRITTEN:
                row.candidates += 1
            case EventKind.BEST_CHANGED:
                row.best_us = data.get("latency_us")
                row.percent_of_peak = data.get("percent_of_peak")
                row.baseline_us = row.baseline_us or row.best_us
                row.speedup = data.get("speedup")
                row.source = data.get("source") or row.source
            case EventKind.LLM_CALL_FINISHED:
                row.cost_usd = (row.cost_usd or 0.0) + (data.get("cost_usd") or 0.0)
            case _:
                return
        self.dirty.add("runs")

    def _devices(self, event: Event) -> None:
        data, kind = event.data, event.kind
        if kind is EventKind.CANDIDATE_QUEUED:
            self.queue[data["candidate"]] = (event.run, event.at)
        elif kind is EventKind.CANDIDATE_STARTED:
            self.queue.pop(data["candidate"], None)
            if data.get("device"):
                device = self.device(data["device"])
                device.state, device.run, device.candidate = "busy", event.run, data["candidate"]
                device.since = event.at
        elif kind is EventKind.CANDIDATE_EVALUATED:
            self.queue.pop(data["candidate"], None)
            for device in self.devices.values():
                if device.candidate == data["candidate"] and device.run == event.run:
                    device.state, device.candidate, device.run, device.since = "idle", None, None, event.at
                    device.done += 1
        elif kind is EventKind.DEVICE_STATE:
            device = self.device(str(data["device"]))
            device.state, device.reason, device.since = data["state"], data.get("reason") or "", event.at
        else:
            return
        self.dirty.add("devices")

    def device(self, name: str) -> DeviceRow:
        """The row of a device, made where there is none."""
        return self.devices.setdefault(name, DeviceRow(name))
