"""Replay a finished run: show its state at the moment that a person chooses by a slider."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from acceld.events import Event
from acceld.tui.console import ConsoleView
from acceld.tui.palette import Palette
from acceld.tui.widgets.bars import fitted
from acceld.tui.words import clock, sentence

PLAY_S = 30.0
"""Seconds that playing a whole run takes."""
SLIDER = 8
"""Least width in cells of the slider with the space beside it. On a narrow line the event gets the other cells."""


class Replay:
    """State of a recorded run after its first ``position`` events."""

    def __init__(self, run: int, events: Sequence[Event]) -> None:
        self.run = run
        self.events = events
        self.position = 0
        self.playing = False
        self.console = self._empty()
        self._due = 0.0

    def _empty(self) -> ConsoleView:
        console = ConsoleView()
        console.open(self.run)
        return console

    @property
    def fraction(self) -> float:
        """Return the position as a share of all events, 0 to 1."""
        return self.position / len(self.events) if self.events else 1.0

    def seek(self, fraction: float) -> None:
        """Go to the position that is the given share of all events, 0 to 1."""
        self._to(round(min(max(fraction, 0.0), 1.0) * len(self.events)))

    def step(self, events: int) -> None:
        """Go forward by a number of events; backward if the number is negative."""
        self._to(min(max(0, self.position + events), len(self.events)))

    def advance(self, seconds: float) -> bool:
        """Play for ``seconds``, until the end at most. Return True if the position changed."""
        self._due += seconds / PLAY_S * len(self.events)
        whole = int(self._due)
        self._due -= whole
        if whole:
            self.step(whole)
        if self.position == len(self.events):
            self.playing = False
        return whole > 0

    def _to(self, position: int) -> None:
        if position < self.position:
            self.console, self.position = self._empty(), 0
        for event in self.events[self.position : position]:
            self.console.apply(event)
        self.position = position
        self.console.dirty.clear()

    def line(self, width: int, palette: Palette) -> Text:
        """Return the slider as a line of at most ``width`` cells."""
        last = self.events[self.position - 1] if self.position else None
        head = f" [ ] {{ }} P {'▶' if self.playing else '‖'} {clock(last.at) if last else '--:--:--'} "
        told = f" {self.position}/{len(self.events)}  {sentence(last) if last else 'the start'}"
        tail = fitted(told, max(20, width - len(head) - SLIDER))
        room = max(4, width - len(head) - len(tail) - 1)
        knob = min(room - 1, round(self.fraction * (room - 1)))
        text = Text(head, style=palette.strong)
        text.append("━" * knob, palette.primary).append("●", palette.accent)
        text.append("─" * (room - knob - 1), palette.muted)
        return text.append(tail, palette.muted)
