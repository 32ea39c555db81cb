"""Build from all events, in order, what screens show beyond a single run: the list of runs, devices, the queue,
the log.

An event whose number is at most ``seq`` was applied before and changes nothing. So events may be delivered
again after a broken connection.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from acceld.events import (
    BestChanged,
    CandidateEvaluated,
    CandidateQueued,
    CandidateStarted,
    CandidateWritten,
    DaemonStarted,
    DaemonStopped,
    DeviceState,
    Event,
    InsightChanged,
    InsightWritten,
    IterationStarted,
    LlmCallFinished,
    RunCreated,
    RunStateChanged,
    Steered,
    TimedAgain,
    to_json,
)
from acceld.gains import Verdict, worth
from acceld.model import CANCELLING
from acceld.tui.state import Recent, RunView, cancels

KEPT_LOG = 2_000
KEPT_VIEWS = 4
KEPT_RUNS = 1_000


@dataclass(slots=True)
class RunRow:
    """A run in the list of runs."""

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
    verdict: Verdict = Verdict.TIE
    """Worth of the best kernel's speed-up over the baseline."""
    percent_of_peak: float | None = None
    candidates: int = 0
    passed: int = 0
    cost_usd: float | None = None
    created_at: float = 0.0
    ended_at: float | None = None
    source: str = "simulated"
    """``simulated`` or ``measured``, by the evaluation of the best candidate."""


@dataclass(slots=True)
class DeviceRow:
    """A device, and what it does now."""

    name: str
    state: str = "idle"
    reason: str = ""
    run: int | None = None
    candidate: int | None = None
    since: float = 0.0
    done: int = 0


@dataclass(slots=True)
class ConsoleView:
    """State of all runs and of the daemon. ``dirty`` names the parts that have changed since a screen was last drawn."""

    seq: int = 0
    runs: dict[int, RunRow] = field(default_factory=dict)
    views: OrderedDict[int, RunView] = field(default_factory=OrderedDict)
    """The runs that a screen has opened, last used last. A view records if its rows were read, so the
    rows of a run whose view was dropped are read again.
    """
    devices: dict[str, DeviceRow] = field(default_factory=dict)
    queue: OrderedDict[int, tuple[int | None, float]] = field(default_factory=OrderedDict)
    """The run of each waiting candidate and the time at which the candidate was queued, in order of arrival."""
    answer: Mapping[str, Any] = field(default_factory=dict)
    """The daemon's newest answer about its queue; empty before the first answer."""
    log: Recent = field(default_factory=lambda: Recent(KEPT_LOG))
    now: float = 0.0
    """Time of the newest event, seconds since the epoch."""
    dirty: set[str] = field(default_factory=set)

    def open(self, run: int) -> RunView:
        """Return the view of a run. A missing view is made. If there are too many views, the least recently used
        views are dropped.
        """
        view = self.views.pop(run, None) or RunView(run)
        self.views[run] = view
        while len(self.views) > KEPT_VIEWS:
            self.views.popitem(last=False)
        return view

    def load_run(self, row: Mapping[str, Any], spec: Mapping[str, Any]) -> RunRow:
        """Take over a run's row that the daemon sent, and return the run in the list. ``spec`` has workload,
        chip, api, backend, proposer, preset and search.
        """
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
            verdict=worth(row.get("verdict"), row.get("improved")),
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

    def take_queue(self, answer: Mapping[str, Any]) -> None:
        """Replace the devices and the queue by what the daemon says of them.

        The daemon's answer includes what happened before this console connected, and nothing of an earlier
        daemon.
        """
        running = {row["device"]: row for row in answer.get("running") or () if row.get("device")}
        for name in running:
            self.device(name)
        for name, device in self.devices.items():
            row = running.get(name)
            if row is not None:
                since = row.get("started_at") or 0.0
                device.state, device.run, device.candidate, device.since = "busy", row["run"], row["candidate"], since
            elif device.state == "busy":
                device.state, device.run, device.candidate, device.since = "idle", None, None, self.now
        waiting = answer.get("waiting") or ()
        self.queue = OrderedDict((row["candidate"], (row["run"], row.get("created_at") or 0.0)) for row in waiting)
        self.answer = answer
        for row in answer.get("calls") or ():
            view = self.views.get(row["run"])
            if view is not None and view.load_call(row):
                self.dirty.add(f"run {view.id}")
        self.dirty.add("devices")

    def forget_work(self) -> None:
        """Forget devices, the queue and running work, because the daemon that did it is gone."""
        self.devices.clear()
        self.queue.clear()
        self.answer = {}
        for view in self.views.values():
            view.forget_work()
        self.dirty.add("devices")

    def remember(self, event: Event) -> None:
        """Add a past event to the log. Nothing else changes: the rows have its effects already."""
        self.log.add(event)
        self.now = max(self.now, event.at)

    def apply(self, event: Event) -> bool:
        """Apply an event to the state. Return False if it was applied before."""
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
        if isinstance(event.data, DaemonStarted | DaemonStopped):
            self.forget_work()
        if isinstance(event.data, InsightWritten | InsightChanged):
            self.dirty.add("insights")
        return True

    def _row(self, event: Event, run: int) -> None:
        row = self.runs.get(run)
        if isinstance(event.data, RunCreated):
            row = self.load_run({"id": run, "created_at": event.at}, to_json(event.data))
        if row is None:
            return
        match event.data:
            case RunStateChanged(state, message):
                row.state, row.message = state, message
                if state.ended:
                    row.ended_at = event.at
            case Steered() as steered if cancels(steered) and row.ended_at is None:
                row.state = CANCELLING
            case IterationStarted(iteration):
                row.iteration = iteration
            case CandidateWritten(parent=int()):  # baselines are not counted, as in the history
                row.candidates += 1
            case TimedAgain():
                row.baseline_us = row.best_us = row.speedup = None
            case BestChanged() as best:
                row.best_us, row.percent_of_peak, row.speedup = best.latency_us, best.percent_of_peak, best.speedup
                row.verdict = worth(best.verdict, best.improved)
                if row.baseline_us is None and best.latency_us is not None:
                    row.baseline_us = best.latency_us * (best.speedup or 1.0)
                row.source = best.source or row.source
            case LlmCallFinished(cost_usd=cost_usd):
                row.cost_usd = (row.cost_usd or 0.0) + (cost_usd or 0.0)
            case _:
                return
        self.dirty.add("runs")

    def _devices(self, event: Event) -> None:
        match event.data:
            case CandidateQueued(candidate):
                self.queue[candidate] = (event.run, event.at)
            case CandidateStarted(candidate, name):
                self.queue.pop(candidate, None)
                if name:
                    device = self.device(name)
                    device.state, device.run, device.candidate = "busy", event.run, candidate
                    device.since = event.at
            case CandidateEvaluated(candidate):
                self.queue.pop(candidate, None)
                for device in self.devices.values():
                    if device.candidate == candidate and device.run == event.run:
                        device.state, device.candidate, device.run, device.since = "idle", None, None, event.at
                        device.done += 1
            case DeviceState(name, state, reason):
                device = self.device(name)
                device.state, device.reason, device.since = state, reason, event.at
            case _:
                return
        self.dirty.add("devices")

    def device(self, name: str) -> DeviceRow:
        """Return the device called ``name``, which is added if it is missing."""
        return self.devices.setdefault(name, DeviceRow(name))
