"""Live progress of a run from its events: one line that is redrawn on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Protocol, TextIO

from acceld import figures
from acceld.events import BeamSelected, BestChanged, Event, Notice
from acceld.model import STATUS_ORDER
from acceld.tui.state import RunView


def progress_line(run: RunView) -> str:
    """Return how a run stands in one line, without the time; the baseline is not among the candidates counted."""
    counts = run.counts.copy()
    if run.baseline is not None and run.baseline.status is not None:
        counts[run.baseline.status] -= 1
    counted = ", ".join(f"{n} {status}" for status in STATUS_ORDER if (n := counts[status]))
    parts = [f"iteration {run.iteration}/{run.iterations}", counted or "no candidates yet"]
    if run.waiting:
        parts.append(f"{run.waiting} waiting")
    if run.best is not None:
        best = f"best {figures.brief_latency(run.best.latency_us, run.best.source, run.chip)}"
        parts.append(f"{best} ({run.bests[0].latency_us / run.best.latency_us:.2f}x)")
        if run.best.percent_of_peak is not None:
            parts.append(f"{figures.percent(run.best.percent_of_peak)} of peak")
    return " · ".join(parts)


class Progress(Protocol):
    """Shows a run while it goes on."""

    def update(self, event: Event) -> None:
        """Take in one event."""
        ...

    def close(self) -> None:
        """Leave the screen in order."""
        ...


class PlainProgress:
    """A line for each thing worth knowing; for logs and pipes."""

    def __init__(self, run: int, stream: TextIO) -> None:
        self._run, self._stream = RunView(run), stream
        self._started = time.monotonic()
        self._last = ""

    def update(self, event: Event) -> None:
        """Print a line for a notice, a new best and the end of an iteration."""
        if event.seq <= self._run.seq:
            return
        self._run.apply(event)
        if isinstance(event.data, Notice):
            print(event.data.text, file=self._stream, flush=True)
        elif isinstance(event.data, BestChanged | BeamSelected) and (line := progress_line(self._run)) != self._last:
            self._last = line
            elapsed = figures.elapsed(time.monotonic() - self._started)
            print(f"{line} · {elapsed}", file=self._stream, flush=True)

    def close(self) -> None:
        """Do nothing: there is nothing to restore."""


class TerminalProgress:
    """One line that is redrawn, above it the notices."""

    def __init__(self, run: int, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._run = RunView(run)
        self._console = Console(file=stream)
        self._live = Live(console=self._console, refresh_per_second=8, transient=True)
        self._started = time.monotonic()
        self._live.start()

    def update(self, event: Event) -> None:
        """Redraw with the event taken in."""
        from rich.text import Text

        if event.seq > self._run.seq:
            self._run.apply(event)
            if isinstance(event.data, Notice):
                self._console.print(event.data.text, markup=False)
            elapsed = figures.elapsed(time.monotonic() - self._started)
            self._live.update(Text(f"{progress_line(self._run)} · {elapsed}", overflow="fold"))

    def close(self) -> None:
        """Remove the line."""
        self._live.stop()


def progress_for(run: int, stream: TextIO | None = None) -> Progress:
    """Return the one for a stream (default: standard error)."""
    stream = stream or sys.stderr
    return TerminalProgress(run, stream) if stream.isatty() else PlainProgress(run, stream)
