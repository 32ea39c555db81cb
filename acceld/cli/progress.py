"""Live progress of a run from its events: one block that is redrawn on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol, TextIO

from acceld import figures
from acceld.events import (
    BeamSelected,
    BestChanged,
    CandidateEvaluated,
    CandidateWritten,
    Event,
    IterationStarted,
    Notice,
    RunCreated,
    RunStateChanged,
)
from acceld.model import STATUS_ORDER, Status


@dataclass
class ProgressState:
    """A fold over a run's events; applying one twice changes nothing."""

    chip: str = ""
    source: str = "simulated"
    """Of the newest best latency, as its own evaluation says."""
    iteration: int = 0
    iterations: int = 0
    waiting: int = 0
    best_us: float | None = None
    baseline_us: float | None = None
    percent_of_peak: float | None = None
    state: str = "queued"
    message: str = ""
    notices: list[str] = field(default_factory=list)
    _seq: int = 0
    _baseline: int | None = None
    _statuses: dict[int, Status] = field(default_factory=dict)
    _pending: set[int] = field(default_factory=set)

    @property
    def counts(self) -> Counter[Status]:
        """Candidates by their latest status; the baseline is none."""
        return Counter(status for candidate, status in self._statuses.items() if candidate != self._baseline)

    def apply(self, event: Event) -> bool:
        """Take one event in; returns whether it was new."""
        if event.seq <= self._seq:
            return False
        self._seq = event.seq
        match event.data:
            case RunCreated(chip=chip, search=search):
                self.chip, self.iterations = chip, search["iterations"]
            case RunStateChanged(state, message):
                self.state, self.message = state, message
            case IterationStarted(iteration):
                self.iteration = iteration
            case CandidateWritten(candidate, parent):
                self._pending.add(candidate)
                if parent is None:
                    self._baseline = candidate
            case CandidateEvaluated(candidate, _, status):
                self._pending.discard(candidate)
                self._statuses[candidate] = status
            case BestChanged() as best:
                self.best_us, self.percent_of_peak = best.latency_us, best.percent_of_peak
                self.source = best.source or self.source
                if self.baseline_us is None:
                    self.baseline_us = self.best_us
            case Notice(text=text):
                self.notices.append(text)
            case _:
                pass
        self.waiting = len(self._pending)
        return True

    def line(self) -> str:
        """The state in one line, without the time."""
        counts = ", ".join(f"{n} {status}" for status in STATUS_ORDER if (n := self.counts[status]))
        parts = [f"iteration {self.iteration}/{self.iterations}", counts or "no candidates yet"]
        if self.waiting:
            parts.append(f"{self.waiting} waiting")
        if self.best_us is not None:
            best = f"best {figures.brief_latency(self.best_us, self.source, self.chip)}"
            if self.baseline_us:
                best += f" ({self.baseline_us / self.best_us:.2f}x)"
            parts.append(best)
        if self.percent_of_peak is not None:
            parts.append(f"{figures.percent(self.percent_of_peak)} of peak")
        return " · ".join(parts)


class Progress(Protocol):
    """Shows a run while it goes on."""

    def update(self, event: Event) -> None:
        """Take in one event."""
        ...

    def tick(self) -> None:
        """Called now and then, so that the elapsed time moves."""
        ...

    def close(self) -> None:
        """Leave the screen in order."""
        ...


class PlainProgress:
    """A line for each thing worth knowing; for logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self.state = ProgressState()
        self._stream = stream
        self._started = time.monotonic()
        self._told = ""

    def update(self, event: Event) -> None:
        """Print a line where the event is telling."""
        if not self.state.apply(event):
            return
        if isinstance(event.data, Notice):
            print(event.data.text, file=self._stream, flush=True)
        elif isinstance(event.data, BestChanged | BeamSelected) and (line := self.state.line()) != self._told:
            self._told = line
            print(f"{line} · {self._elapsed()}", file=self._stream, flush=True)

    def _elapsed(self) -> str:
        return figures.elapsed(time.monotonic() - self._started)

    def tick(self) -> None:
        """Nothing moves between lines."""

    def close(self) -> None:
        """Nothing to restore."""


class TerminalProgress:
    """One line that is redrawn, above it the notices."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        self.state = ProgressState()
        self._text = Text
        self._console = Console(file=stream)
        self._live = Live(console=self._console, refresh_per_second=8, transient=True)
        self._started = time.monotonic()
        self._live.start()

    def update(self, event: Event) -> None:
        """Redraw with the event taken in."""
        if self.state.apply(event):
            if isinstance(event.data, Notice):
                self._console.print(event.data.text, markup=False)
            self.tick()

    def tick(self) -> None:
        """Redraw with the time as it is now."""
        seconds = time.monotonic() - self._started
        self._live.update(self._text(f"{self.state.line()} · {figures.elapsed(seconds)}", overflow="fold"))

    def close(self) -> None:
        """Remove the line."""
        self._live.stop()


def progress_for(stream: TextIO | None = None) -> Progress:
    """The right one for a stream (default: standard error)."""
    stream = stream or sys.stderr
    return TerminalProgress(stream) if stream.isatty() else PlainProgress(stream)
