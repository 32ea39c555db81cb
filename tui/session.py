"""Hold what all screens share: the source of the data, the state, and what a person has chosen. Nothing here refers
to a screen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from acceld.alerts import Alert, alert_of
from acceld.errors import AcceldError, DaemonError, WorkloadError
from acceld.events import Event, event_of
from acceld.roofline import PAPER_PEAKS
from acceld.tui.client import Client
from acceld.tui.console import ConsoleView
from acceld.tui.replay import Replay
from acceld.tui.state import Roof, Rows, RunView
from acceld.workloads import load_workload, workload

PAGE = 500
KEPT_AT_START = 500
"""Number of past events in the log of a new console."""


class Session:
    """The shared state of a terminal UI. All data come from ``client``."""

    def __init__(
        self, client: Client, *, run: int | None = None, replay: Replay | None = None, clock: Callable[[], float]
    ) -> None:
        self.client = client
        self.replay = replay
        self.live = ConsoleView()
        """The live state from all events so far, also while a replay is shown."""
        self.run = run if replay is None else replay.run
        self._candidate: tuple[int | None, int | None] = (None, None)
        """Ids of the run and of the candidate that were chosen together."""
        self.marked: int | None = None
        """The marked candidate, with which another candidate can be compared."""
        self.banner = ""
        """The state of the connection as text; empty while the connection works."""
        self.lost = False
        """True from the moment when the connection breaks until the next connection."""
        self.hello: Mapping[str, Any] = {}
        """The daemon's answer to ``/v1/hello``, the first request."""
        self._clock = clock

    @property
    def state(self) -> ConsoleView:
        """Return the state that screens show: the present state; in a replay, the state at the slider."""
        return self.replay.console if self.replay else self.live

    @property
    def now(self) -> float:
        """Return the time in seconds since the epoch: the present; in a replay, the time at the slider."""
        return self.state.now if self.replay else self._clock()

    @property
    def knows_the_present(self) -> bool:
        """Tell whether the daemon answers. If not, shown states are then the last known ones, and work may or may not
        go on.
        """
        return self.replay is not None or self.read_only or not self.lost

    def doing(self, run: RunView) -> str:
        """Return in words what a run does now, and for how long; empty if that is unknown."""
        return run.doing(self.now) if self.knows_the_present else ""

    @property
    def state_folder(self) -> str:
        """Return the path of the state folder; empty if it is not known."""
        database = self.hello.get("database")
        return str(Path(database).parent) if database else ""

    @property
    def troubles(self) -> str:
        """Return the reasons why the daemon can not work, such as a full disk; empty if it can."""
        answer = self.live.answer
        if self.replay is not None or not answer:
            return ""
        if answer.get("degraded"):
            return f"DEGRADED: {answer['degraded']}"
        return "; ".join(f"the daemon waits: {text}" for text in answer.get("waits_for") or ())

    @property
    def run_view(self) -> RunView | None:
        """Return the view of the run in view; None without one."""
        return self.state.views.get(self.run) if self.run is not None else None

    @property
    def candidate(self) -> int | None:
        """Return the id of the candidate in view, which belongs to the run in view; None without one."""
        run, candidate = self._candidate
        return candidate if run == self.run else None

    @candidate.setter
    def candidate(self, candidate: int | None) -> None:
        self._candidate = (self.run, candidate)

    @property
    def loading(self) -> bool:
        """Tell whether the run in view is not loaded yet."""
        view = self.run_view
        return self.replay is None and self.run is not None and (view is None or not view.workload)

    @property
    def read_only(self) -> bool:
        """Tell whether nothing can be changed: in a replay, and for a history without a daemon."""
        return self.replay is not None or self.client.read_only or bool(self.hello.get("read_only"))

    def select(self, run: int) -> bool:
        """Make a run the run in view. Return True if its rows must be loaded."""
        if run != self.run:
            self.run, self.candidate = run, None
        view = self.state.open(run)
        return self.replay is None and view.rows is Rows.UNREAD

    def fold(self, batch: list[Event]) -> list[Alert]:
        """Apply events to the state. Return the alerts to show a person because of them."""
        fresh = [event for event in batch if self.live.apply(event)]
        return [alert for event in fresh if (alert := alert_of(event)) is not None]

    async def connect(self) -> None:
        """Read the list of runs and the newest events. Raise DaemonError if there is no answer."""
        self.hello = await self.client.get("/v1/hello")
        seq = int(self.hello.get("last_seq") or 0)
        answer = await self.client.get("/v1/runs", limit=500)
        if seq < self.live.seq:
            self.live = ConsoleView()
        self.live.seq = self.live.seq or seq
        for row in answer["runs"]:
            self.live.load_run(row, row.get("spec") or row)
        recent = await self.client.get("/v1/events", after=max(0, seq - KEPT_AT_START), limit=KEPT_AT_START)
        for event in recent["events"]:
            self.live.remember(event_of(event))
        for view in self.live.views.values():  # events may have been missed while the connection was broken
            view.rows = Rows.UNREAD
        await self.ask_queue()
        self.lost = False
        self.banner = "read-only history: no daemon is running (acceld start starts one)" if self.read_only else ""
        if self.run is not None and self.run not in self.live.runs:
            try:
                row = await self.client.get(f"/v1/runs/{self.run}")
            except DaemonError:
                raise
            except AcceldError:  # no such run
                self.run = None
            else:
                self.live.load_run(row, row.get("spec") or row)
        if self.run is None:
            self.run = max(self.live.runs, default=None)
        if self.run is not None:
            self.select(self.run)

    async def ask_queue(self) -> None:
        """Read the state of the daemon's devices and queue. Raise DaemonError if there is no answer."""
        self.live.take_queue(await self.client.get("/v1/queue"))

    def lose(self) -> None:
        """Forget what the daemon was doing. This is called when the daemon does not answer."""
        self.lost = True
        self.live.forget_work()

    async def load(self, run: int, shown: Callable[[], None]) -> None:
        """Load the rows of a run into its view, in pages. ``shown`` is called after each page.

        Events that arrive meanwhile win over rows. Loading stops if the view is dropped meanwhile.
        """
        view, seq = self.live.views.get(run), self.live.seq
        if view is None:
            return
        view.rows = Rows.COMING
        try:
            found = await self.client.get(f"/v1/runs/{run}")
            view.load_run(found, seq)
            view.roof = await asyncio.to_thread(_roof, found.get("workload_folder"), found.get("workload"), view.chip)
            await self._load_pages(view, "candidates", lambda row: view.load_candidate(row, seq), shown)
            await self._load_pages(view, "plans", view.load_plan, shown)
            view.rows = Rows.READ
        finally:
            if view.rows is Rows.COMING:
                view.rows = Rows.UNREAD

    async def _load_pages(
        self, view: RunView, what: str, load: Callable[[Any], None], shown: Callable[[], None]
    ) -> None:
        after, more = 0, True
        while more and self.live.views.get(view.id) is view:
            page = (await self.client.get(f"/v1/runs/{view.id}/{what}", after=after, limit=PAGE))[what]
            for row in page:
                load(row)
                after = row["id"]
            more = len(page) == PAGE
            shown()


def _roof(folder: str | None, name: str | None, chip: str) -> Roof | None:
    """Return declared work and rates for the roofline of a run; None if the workload's folder is not on this
    machine, or if it declares no work.
    """
    peaks = PAPER_PEAKS.get(chip)
    try:
        loaded = load_workload(folder) if folder else workload(name or "")
    except WorkloadError:
        return None
    if peaks is None or loaded.work is None or not loaded.work.hbm_bytes:
        return None
    work = loaded.work
    flops_per_s = peaks.matmul_flops_per_s.get(loaded.dtype) if work.matmul_flops else peaks.vector_flops_per_s
    flops = work.matmul_flops or work.vector_flops
    return Roof(flops, work.hbm_bytes, flops_per_s, peaks.hbm_bytes_per_s) if flops and flops_per_s else None
