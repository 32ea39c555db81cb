"""Show all events as they come, or the daemon's log."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, ClassVar

from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType

from acceld import figures
from acceld.events import Event, Tuning
from acceld.tui.palette import styled
from acceld.tui.screens.base import ConsoleScreen
from acceld.tui.session import Session
from acceld.tui.terminal import copy
from acceld.tui.widgets.lines import LineList
from acceld.tui.words import clock, level_of, sentence

LEVELS = ("everything", "warnings", "errors")


class LogsScreen(ConsoleScreen):
    """Screen with the events in order of time, or with the daemon's log."""

    NAME = "logs"
    AUTO_FOCUS: ClassVar[str | None] = "#log"
    WANTS = frozenset({"log"})
    FILTERS = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "follow", "Follow", id="logs.follow"),
        Binding("exclamation_mark", "level", "Level", id="logs.level", key_display="!"),
        Binding("d", "daemon", "Daemon's log", id="logs.daemon"),
        Binding("r", "run", "This run", id="logs.run"),
        Binding("y", "copy", "Copy", id="copy"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._level = 0
        self._daemon = False
        self._one_run = False
        self._lines: list[Mapping[str, Any]] = []
        self._followed = True

    def body(self) -> Iterable[Any]:
        yield LineList(id="log")

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one("#log", LineList).follow(True)

    def show(self) -> None:
        log = self.query_one("#log", LineList)
        keys: list[Hashable]
        if self._daemon:
            log.border_title = "The daemon's log"
            keys = list(range(len(self._lines)))
            log.empty = self.nothing("The daemon has written nothing.", "logs")
            log.show(keys, self._line)
        else:
            events = [event for event in self.session.state.log if self._matches(event)]
            log.border_title = "Events" + (f" of r{self.run_view.id}" if self._one_run and self.run_view else "")
            keys = [event.seq for event in events]
            filtered = self.query_text or self._level or self._one_run
            log.empty = self.nothing("No event matches." if filtered else "Nothing has happened yet.")
            log.show(keys, self._event)
        log.border_subtitle = (
            f"{LEVELS[self._level]}{', following' if self._followed else ''}, {figures.many(len(keys), 'line')}"
        )

    def _matches(self, event: Event) -> bool:
        if isinstance(event.data, Tuning) and event.data.timed and not event.data.ended:
            return False  # the line about the run shows how far the tuning is
        if self._one_run and self.run_view is not None and event.run != self.run_view.id:
            return False
        if self._level and level_of(event) not in ("warning", "error")[self._level - 1 :]:
            return False
        return not self.query_text or self.matches(f"r{event.run} {event.kind.value} {sentence(event)}")

    def _event(self, key: Hashable, width: int) -> Text:
        palette, event = self.palette, self.session.state.log.find(key)
        if event is None:
            return Text("")
        level = level_of(event)
        text = styled(f"{clock(event.at)} ", palette.muted)
        text.append({"error": "✗ ", "warning": "! "}.get(level, "  "), palette.level(level))
        text.append(f"{f'r{event.run}' if event.run else '':<5}", palette.muted)
        return text.append(sentence(event), palette.level(level))

    def _line(self, key: Hashable, width: int) -> Text:
        palette, row = self.palette, self._lines[int(str(key))]
        level = str(row.get("level") or "info").lower()
        text = styled(f"{clock(row.get('at') or 0.0)} {level:<8}", palette.level(level))
        return text.append(f"{row.get('logger') or ''} ", palette.muted).append(str(row.get("text") or ""))

    @on(LineList.Chosen, "#log")
    def _chosen(self, message: LineList.Chosen) -> None:
        message.stop()
        if not self._daemon:
            self.open_event(self.session.state.log.find(message.key))

    def action_follow(self) -> None:
        self._followed = not self._followed
        self.query_one("#log", LineList).follow(self._followed)
        self.show()

    def action_level(self) -> None:
        self._level = (self._level + 1) % len(LEVELS)
        self.show()

    def action_run(self) -> None:
        self._one_run = not self._one_run
        self.show()

    def action_daemon(self) -> None:
        self._daemon = not self._daemon
        if self._daemon:
            self.fetch("/v1/logs", self._take, limit=1000)
        self.show()

    def _take(self, answer: Mapping[str, Any]) -> None:
        self._lines = list(answer.get("lines") or ())
        self.show()

    def action_copy(self) -> None:
        event = self.session.state.log.find(self.query_one("#log", LineList).key)
        if event is not None:
            copy(self.app, f"{clock(event.at)} {sentence(event)}", "line")
