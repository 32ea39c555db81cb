"""Show a run's progress from its events: on a terminal as one line that is redrawn, elsewhere as plain lines."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Protocol, TextIO

from acceld import figures
from acceld.events import BeamSelected, BestChanged, CandidateStarted, Event, Notice, Tuning
from acceld.model import RunState
from acceld.tui.state import RunView

if TYPE_CHECKING:
    from rich.text import Text

REFRESH_HZ = 4
TUNING_S = 10.0
"""Seconds between two lines about a tuning in a log."""


def progress_line(run: RunView, now: float = 0.0) -> str:
    """Return in one line what a run does, without the time since its start.

    ``now`` is in seconds since the epoch. The baseline is not counted as a candidate.
    """
    parts = [f"iteration {run.iteration}/{run.iterations}", figures.counted(run.evaluated) or "no candidates yet"]
    if doing := run.doing(now):
        parts.append(doing)
    elif run.state is RunState.QUEUED and not run.candidates:
        parts.append("waits for its turn")
    elif run.waiting and not run.ended:
        parts.append(f"{run.waiting} waiting")
    if run.best is not None:
        best = f"best {figures.brief_latency(run.best.latency_us, run.best.source, run.chip)}"
        gained = figures.brief_gain(run.bests[0].latency_us / run.best.latency_us, run.best.verdict)
        parts.append(f"{best} ({gained})")
        if run.best.percent_of_peak is not None:
            parts.append(f"{figures.percent(run.best.percent_of_peak)} of peak")
    if leader := run.leader:
        parts.append(f"c{leader.id} {figures.speedup(run.speedup_of(leader))} unconfirmed")
    return " · ".join(parts)


class Progress(Protocol):
    """Interface of a display of a run's progress."""

    def update(self, event: Event) -> None:
        """Show what an event changed."""
        ...

    def close(self) -> None:
        """End the display, so that other output can follow."""
        ...


class PlainProgress:
    """Display for logs and pipes: a line for each important event."""

    def __init__(self, run: int, stream: TextIO) -> None:
        self._run, self._stream = RunView(run), stream
        self._started = time.monotonic()
        self._last, self._told_at = "", 0.0

    def update(self, event: Event) -> None:
        """Print a line for a notice, a new best, a new leader, the end of an iteration, and now and then for a
        tuning.
        """
        if event.seq <= self._run.seq:
            return
        self._run.apply(event)
        if isinstance(event.data, Notice):
            print(event.data.text, file=self._stream, flush=True)
            return
        leads = isinstance(event.data, CandidateStarted) and self._run.leader is not None
        tunes = isinstance(event.data, Tuning) and event.at - self._told_at >= TUNING_S and self._run.tuning != []
        if leads or tunes or isinstance(event.data, BestChanged | BeamSelected):
            self._told_at = event.at
            line = progress_line(self._run, event.at)
            if line != self._last:
                self._last = line
                elapsed = figures.elapsed(time.monotonic() - self._started)
                print(f"{line} · {elapsed}", file=self._stream, flush=True)

    def close(self) -> None:
        """Do nothing: the printed lines stay."""


class TerminalProgress:
    """Display for terminals: one line that is redrawn, with notices above it."""

    def __init__(self, run: int, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._run, self._lock = RunView(run), threading.Lock()
        self._console = Console(file=stream)
        self._started = time.monotonic()
        self._live = Live(
            console=self._console, get_renderable=self._line, refresh_per_second=REFRESH_HZ, transient=True
        )
        self._live.start()

    def update(self, event: Event) -> None:
        """Take in an event. A timer redraws the line, so that its times advance without events too."""
        with self._lock:
            if event.seq <= self._run.seq:
                return
            self._run.apply(event)
        if isinstance(event.data, Notice):
            self._console.print(event.data.text, markup=False)

    def _line(self) -> Text:
        from rich.text import Text

        with self._lock:
            line = progress_line(self._run, time.time())
        return Text(f"{line} · {figures.elapsed(time.monotonic() - self._started)}", overflow="fold")

    def close(self) -> None:
        """Erase the line that shows the progress."""
        self._live.stop()


def progress_for(run: int) -> Progress:
    """Return the display of a run's progress that suits standard error."""
    stream = sys.stderr
    return TerminalProgress(run, stream) if stream.isatty() else PlainProgress(run, stream)
