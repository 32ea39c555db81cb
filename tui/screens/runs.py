"""Show all runs, and the latest events."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical

from acceld import figures
from acceld.errors import ConfigError
from acceld.gains import Verdict
from acceld.tui.console import RunRow
from acceld.tui.palette import styled
from acceld.tui.screens.base import ConsoleScreen, best_line
from acceld.tui.session import Session
from acceld.tui.state import RunView
from acceld.tui.terminal import copy
from acceld.tui.widgets.columns import Column, cell, column_at, header, line
from acceld.tui.widgets.frame import Panel
from acceld.tui.widgets.lines import LineList
from acceld.tui.words import age, event_line

COLUMNS = (
    Column("run", 5, keep=9),
    Column("workload", 12, keep=9, stretch=True),
    Column("chip", 5, keep=1),
    Column("state", 11, keep=8),
    Column("iter", 6, keep=5, right=True),
    Column("baseline", 8, keep=4, right=True),
    Column("best", 7, keep=6, right=True),
    Column("x", 12, keep=9, right=True),
    Column("% peak", 6, keep=3, right=True),
    Column("cand", 6, keep=0, right=True),
    Column("$", 7, keep=2, right=True),
    Column("age", 4, keep=1, right=True),
)


def chosen(titles: Sequence[str]) -> tuple[int, ...]:
    """Return the positions of the columns with these titles; without titles, those of all columns.

    Raise ConfigError for a title that no column has.
    """
    places = {column.title: place for place, column in enumerate(COLUMNS)}
    for title in titles:
        if title not in places:
            raise ConfigError(
                f"tui.columns: {title!r} is no column of Runs", hint=f"the columns are: {', '.join(places)}"
            )
    return tuple(places[title] for title in dict.fromkeys(titles or places))


class RunsScreen(ConsoleScreen):
    """Screen with the list of runs and the latest events."""

    NAME = "runs"
    AUTO_FOCUS: ClassVar[str | None] = "#runs"
    WANTS = frozenset({"runs", "run", "log"})
    AGES = ("runs",)
    FILTERS = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open", id="runs.open"),
        Binding("plus", "app.steer('new_run')", "New", id="run.new", key_display="+"),
        Binding("p", "app.steer('pause')", "Pause", id="run.pause"),
        Binding("x", "app.steer('cancel')", "Cancel", id="run.cancel"),
        Binding("o", "sort", "Sort", show=False, id="runs.sort"),
        Binding("y", "copy", "Copy", show=False, id="copy"),
    ]
    SORTS: ClassVar[tuple[str, ...]] = ("newest", "speed-up", "cost", "workload", "state", "percent of peak")
    SORTED_BY: ClassVar[Mapping[str, str]] = {
        "run": "newest",
        "age": "newest",
        "x": "speed-up",
        "$": "cost",
        "workload": "workload",
        "state": "state",
        "% peak": "percent of peak",
    }

    def __init__(self, session: Session, columns: Sequence[str] = ()) -> None:
        super().__init__(session)
        self._places = chosen(columns)
        self._columns = tuple(COLUMNS[place] for place in self._places)

    def body(self) -> Iterable[Any]:
        with Horizontal():
            with Vertical():
                yield LineList(id="runs")
                yield LineList(id="events")
            yield Panel(self._details, id="details")

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one("#events", LineList).follow(True)

    def show(self) -> None:
        runs = self.query_one("#runs", LineList)
        rows = [row for row in self.session.state.runs.values() if self._matches(row)]
        rows.sort(key=self._order)
        palette = self.palette
        none_yet = "No run matches." if self.query_text else "No run yet. Press +, or: acceld optimize WORKLOAD"
        runs.empty = self.nothing(none_yet)
        runs.show([row.id for row in rows], self._row, header=lambda w: header(self._columns, w, palette.muted))
        self.point(runs, self.session.run)
        total = len(self.session.state.runs)
        runs.border_title = f"Runs {len(rows)} of {total}" if len(rows) < total else f"Runs {total}"
        runs.border_subtitle = "" if self.sort == 0 else f"by {self.SORTS[self.sort]}"
        events = self.query_one("#events", LineList)
        log = self.session.state.log
        events.border_title = "Events"
        events.empty = self.nothing("Nothing has happened yet.")
        events.show([event.seq for event in log if event.kind not in QUIET][-50:], self._event)
        self.query_one("#details").refresh()

    def _matches(self, row: RunRow) -> bool:
        return self.matches(f"r{row.id} {row.workload} {row.name} {row.chip} {row.state} {row.proposer} {row.api}")

    def _order(self, row: RunRow) -> Any:
        match self.sort:
            case 1:
                return (-(row.speedup or 0.0), -row.id)
            case 2:
                return (-(row.cost_usd or 0.0), -row.id)
            case 3:
                return (row.workload, -row.id)
            case 4:
                return (row.state, -row.id)
            case 5:
                return (-(row.percent_of_peak or 0.0), -row.id)
            case _:
                return -row.id

    def _row(self, key: Hashable, width: int) -> Text:
        palette = self.palette
        row = self.session.state.runs.get(key) if isinstance(key, int) else None
        if row is None:
            return Text("")
        speedup = row.speedup or (row.baseline_us / row.best_us if row.baseline_us and row.best_us else None)
        cells = [
            (f"r{row.id}", palette.strong),
            (row.name or row.workload, palette.text),
            (row.chip, palette.muted),
            cell(self.state_text(row.state)),
            (f"{row.iteration}/{row.iterations}" if row.iterations else str(row.iteration), palette.muted),
            (figures.duration(row.baseline_us), palette.muted),
            (figures.duration(row.best_us), palette.text),
            (
                figures.brief_gain(speedup, row.verdict),
                palette.good if row.verdict is Verdict.CERTAIN else palette.muted,
            ),
            (f"{row.percent_of_peak:.1f}" if row.percent_of_peak is not None else "—", palette.text),
            (str(row.candidates), palette.muted),
            (figures.usd(row.cost_usd) if row.cost_usd else "—", palette.muted),
            (age(self.session.now - row.created_at), palette.muted),
        ]
        return line(self._columns, [cells[place] for place in self._places], width)

    def _event(self, key: Hashable, width: int) -> Text:
        event = self.session.state.log.find(key)
        return event_line(event, self.palette) if event else Text("")

    def _details(self, width: int, height: int) -> Text:
        palette, run = self.palette, self.run_view
        if run is None:
            return styled(self.nothing("Choose a run."), palette.muted)
        text = Text()
        text.append(f"r{run.id} {run.workload}\n", palette.strong)
        text.append(f"{run.chip} · {run.api} · {run.backend}\nproposals by {run.proposer}\n\n", palette.muted)
        text.append_text(self.state_text(run.state)).append("\n")
        if verdict := run.verdict(self.applies):
            said = Text(verdict, style=palette.good if run.best and run.best.verdict.worth_applying else palette.text)
            text.append_text(Text("\n").join(said.wrap(self.app.console, width))).append("\n")
        if run.message:
            text.append(run.message + "\n", palette.muted)
        if run.timed_again:
            text.append(run.timed_again + "\n", palette.warn)
        if doing := self.session.doing(run):
            text.append(doing + "\n")
        text.append("\n")
        if run.best and run.baseline_us:
            text.append("baseline  ", palette.muted).append(f"{figures.duration(run.baseline_us)}\n")
            text.append("best      ", palette.muted).append(f"{figures.duration(run.best.latency_us)}  ")
            text.append(f"c{run.best.candidate}\n", palette.accent)
            text.append("speed-up  ", palette.muted)
            speedup = run.baseline_us / run.best.latency_us
            won = run.best.verdict is Verdict.CERTAIN
            text.append(f"{figures.brief_gain(speedup, run.best.verdict)}\n", palette.good if won else palette.text)
            share = _percent_of_peak(run)
            text.append("of peak   ", palette.muted).append(f"{figures.percent(share)}\n")
            text.append_text(self.beyond_peak(share, width)).append("\n")
            text.append(best_line(run, width), palette.good).append("\n")
            text.append("best so far, baseline to now\n\n", palette.muted)
        counts = run.evaluated
        for status, word in figures.STATUS_WORDS.items():
            if counts[status.value]:
                text.append(f"{figures.STATUS_GLYPHS[status]} {word:<12}", palette.status(status))
                text.append(f"{counts[status.value]:>5}\n")
        if run.waiting:
            text.append(f"· {'waiting':<12}{run.waiting:>5}\n", palette.muted)
        return text

    @on(LineList.Moved, "#runs")
    def _moved(self, message: LineList.Moved) -> None:
        if isinstance(message.key, int):
            self.pointed(message.key)
            self.select_run(message.key)

    @on(LineList.HeaderPressed, "#runs")
    def _header_pressed(self, message: LineList.HeaderPressed) -> None:
        self.sort_by(column_at(self._columns, message.width, message.cell))

    @on(LineList.Chosen, "#events")
    def _event_chosen(self, message: LineList.Chosen) -> None:
        message.stop()
        self.open_event(self.session.state.log.find(message.key))

    @on(LineList.Chosen, "#runs")
    def _chosen(self, message: LineList.Chosen) -> None:
        message.stop()
        self.action_open()

    def action_open(self) -> None:
        events = self.query_one("#events", LineList)
        if events.has_focus:
            events.action_choose()
            return
        key = self.query_one("#runs", LineList).key
        if isinstance(key, int):
            self.select_run(key)
            self.app.switch_mode("beam")

    def action_copy(self) -> None:
        key = self.query_one("#runs", LineList).key
        if key is not None:
            copy(self.app, f"r{key}", "run")


def _percent_of_peak(run: RunView) -> float | None:
    """Return the percent of peak of a run's best candidate, from an event or a row; None if neither states it."""
    if run.best is None:
        return None
    node = run.candidates.get(run.best.candidate)
    return run.best.percent_of_peak if node is None or node.percent_of_peak is None else node.percent_of_peak


QUIET = frozenset(
    {
        "candidate_queued",
        "candidate_started",
        "candidate_written",
        "llm_call_started",
        "llm_call_finished",
        "iteration_started",
        "tuning",
        "attempt_failed",
    }
)
"""Kinds of events that are too frequent for the short list. The Logs screen has them."""
