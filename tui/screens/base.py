"""Define what all screens share: frame, keys, and drawing after changes of the state."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from typing import Any, ClassVar

from rich.style import Style
from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import Screen
from textual.widgets import Input

from acceld import figures
from acceld.errors import AcceldError
from acceld.events import Event, Steered
from acceld.gains import Verdict
from acceld.model import CANCELLING, PROPOSERS, UNDER_WAY, RunState
from acceld.tui.console import RunRow
from acceld.tui.palette import Palette, palette_of, styled
from acceld.tui.session import Session
from acceld.tui.state import RunView
from acceld.tui.terminal import APPLY, complain, key_of
from acceld.tui.widgets.bars import fitted, sparkline
from acceld.tui.widgets.columns import Column, whole
from acceld.tui.widgets.frame import Keys, Line, Panel, Tab, Tabs
from acceld.tui.widgets.lines import LineList
from acceld.tui.words import state_word
from acceld.tui.work import start

BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|B|KiB|MiB|ns|µs|ms|s)(?!\w))")
"""Matches the blank between a number and its unit."""
GLUE = "\ue000"
"""Character that stands for that blank while a text is wrapped. It is one cell wide, and no line is broken at it."""


class ConsoleScreen(Screen[None]):
    """Base class of the screens. ``NAME`` is the Textual mode that opens a screen of the subclass."""

    NAME: ClassVar[str] = ""
    WANTS: ClassVar[frozenset[str]] = frozenset()
    """Changes after which the screen is drawn again: ``runs``, ``run`` (the run in view), ``devices``, ``insights``,
    ``log``.
    """
    AGES: ClassVar[tuple[str, ...]] = ()
    """Ids of the lists whose lines show ages."""
    FILTERS: ClassVar[bool] = False
    SORTS: ClassVar[tuple[str, ...]] = ()
    """Names of the orders in which the list can be sorted; the first order is the default."""
    SORTED_BY: ClassVar[Mapping[str, str]] = {}
    """Order of the list by the title of the column whose header is clicked."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Find", id="filter", key_display="/"),
        Binding("n", "find(1)", "Next match", show=False, id="find.next"),
        Binding("N", "find(-1)", "Match before", show=False, id="find.before"),
        Binding("escape", "back", "Back", show=False, id="back"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self._composed = False  # the widgets can not be drawn yet
        self.query_text = ""
        self.sort = 0
        self._pointed: Hashable | None = None
        """Key to which the cursor was last moved."""
        self._unread: dict[str, str] = {}
        """For each request without an answer, the message that it is under way or the reason why it failed."""
        self._greyed: frozenset[str] = frozenset()
        """Keys of actions that are not possible now."""

    @property
    def palette(self) -> Palette:
        """Return the styles of the current theme."""
        return palette_of(self.app)

    @property
    def run_view(self) -> RunView | None:
        """Return the view of the run in view; None without one."""
        return self.session.run_view

    def compose(self) -> ComposeResult:
        yield Tabs(self.NAME)
        yield Line(self._context_line, id="context")
        yield Line(self._banner_line, id="banner")
        with Container(id="body"):
            yield from self.body()
        yield Input(placeholder="filter" if self.FILTERS else "search", id="filter", compact=True)
        if self.session.replay is not None:
            yield Line(self._slider_line, id="slider")
        yield Keys()

    def body(self) -> Iterable[Any]:
        """Yield the screen's own widgets, which stand between the row of tabs and the row of keys."""
        raise NotImplementedError

    def show(self) -> None:
        """Draw the present state in the widgets."""
        raise NotImplementedError

    def on_mount(self) -> None:
        self.query_one("#filter", Input).display = False
        self._composed = True

    def on_screen_resume(self) -> None:
        self.refresh_all()

    def on_resize(self) -> None:
        self.call_after_refresh(self.refresh_all)

    def refresh_all(self) -> None:
        """Draw the frame and the widgets from the present state."""
        if not self._composed or not self.app.is_running:  # an application that ends removes its widgets one by one
            return
        self._show_head()
        if self.session.replay is not None:
            self.query_one("#slider").refresh()
        self.show()
        greyed = frozenset(key for key, one in self.active_bindings.items() if not one.enabled)
        if greyed != self._greyed:
            self._greyed = greyed
            self.refresh_bindings()

    def _show_head(self) -> None:
        self.query_one("#context").refresh()
        banner = self.query_one("#banner")
        banner.display = bool(self.session.banner or self.session.troubles)
        banner.refresh()

    def tick(self) -> None:
        """Draw what changes as time passes, such as the ages in the lists of ``AGES``."""
        if self._composed and self.app.is_running:
            self._show_head()
            for panel in self.query(Panel):
                panel.refresh()
            for name in self.AGES:
                self.query_one(f"#{name}", LineList).redraw()

    async def on_key(self, event: events.Key) -> None:
        """Say why a key is greyed when it is pressed."""
        active = self.active_bindings.get(event.key)
        if active is not None and not active.enabled and active.binding.action.startswith("app.steer("):
            event.stop()
            await self.app.run_action(active.binding.action.replace("app.steer", "app.why"))

    def nothing(self, text: str, asked: str = "") -> str:
        """Return the text to show in an empty list.

        The text says that there is no connection, that data are being read, or that they could not be read. Otherwise
        it is ``text``. ``asked`` is the path of the request to :meth:`fetch`, without the version.
        """
        if self.session.replay is None and not self.session.hello:
            return self.session.banner or "connecting"
        return self._unread.get(asked, "") or text

    def select_run(self, run: int) -> None:
        """Make ``run`` the run that screens show, and load its rows if necessary."""
        if self.session.select(run):
            start(self.app, partial(self.session.load, run, self.refresh_all), group="load")
        self.refresh_all()

    def point(self, lines: LineList, key: Hashable | None) -> None:
        """Move a list's cursor to the line ``key``, if another screen has chosen that line."""
        if key is not None and key != self._pointed and lines.move_to_key(key):
            self._pointed = key

    def pointed(self, key: Hashable) -> None:
        """Record that a person moved the cursor to the line ``key``, so that other screens can follow."""
        self._pointed = key

    def fetch(self, path: str, take: Callable[[Any], None], **parameters: Any) -> None:
        """Send a GET request, and call ``take`` with the answer. The answer is dropped if this screen has sent
        a newer request meanwhile.
        """

        asked = path.split("/")[2]

        async def ask() -> None:
            try:
                answer = await self.session.client.get(path, **parameters)
            except AcceldError as error:
                self._unread[asked] = f"could not be read: {error.message}"
                complain(self.app, error)
                self.show()
                return
            self._unread.pop(asked, None)
            take(answer)

        self._unread[asked] = "reading"
        start(self, ask, group=asked, exclusive=True)

    @property
    def applies(self) -> str:
        """Return the key by which a person writes the best kernel over a file; if the key does nothing, return the
        command that does so.
        """
        return key_of(self, APPLY) if self.session.replay is None else f"acceld apply r{self.session.run} FILE"

    def state_text(self, state: str, before: str = "") -> Text:
        """Return a run's state with its symbol, behind the text ``before``.

        While the daemon does not answer, an active state gets a question mark, because it is only the last known state.
        """
        if self.session.knows_the_present or state not in (*UNDER_WAY, CANCELLING):
            return styled(f"{before}{state_word(state)}", self.palette.state(state))
        return styled(f"{before}? {state}", self.palette.warn)

    def beyond_peak(self, share: float | None, width: int) -> Text:
        """Return lines that say why a percentage of the peak is above 100 %; empty if it is not."""
        why = figures.beyond_peak(share)
        return self.wrapped(why, self.palette.muted, width) if why else Text()

    def wrapped(self, text: str, style: str | Style, width: int, most: int | None = None) -> Text:
        """Return a text broken between words into lines of at most ``width`` cells, each with its line end, at
        most ``most`` lines.

        A number stays on the line of its unit.
        """
        lines = Text(BEFORE_UNIT.sub(GLUE, text), style=style).wrap(self.app.console, width)
        for line in lines:
            line.plain = line.plain.replace(GLUE, " ").rstrip()
        return Text().join(line.append("\n") for line in list(lines)[:most])

    # -- frame ---------------------------------------------------------------------------------------------------

    def _context_line(self, width: int) -> Text:
        app, palette, run = self.session, self.palette, self.run_view
        text = Text(" ")
        if run is None:
            text.append("acceld", palette.strong).append(f"  {app.client.where}", palette.muted)
            return text
        if not run.workload:  # the run's row has not arrived, so its state is not known
            return text.append(f"r{run.id}", palette.strong).append("  reading", palette.muted)
        row = app.state.runs.get(run.id)
        parts = [(styled(f"r{run.id} {run.workload}", palette.strong), 9), (styled(f" {run.chip}", palette.muted), 0)]
        parts.append((self.state_text(run.state, "  "), 8))
        if run.iterations and not run.ended:
            parts.append((styled(f"  it {run.iteration}/{run.iterations}", palette.text), 3))
        if under_way := app.doing(run):
            parts.append((styled(f"  {under_way}", palette.text), 7))
        if run.state == RunState.PAUSED and run.message:
            parts.append(
                (styled(f"  {fitted(' '.join(run.message.splitlines()), max(20, width - 40))}", palette.warn), 7)
            )
        if verdict := run.verdict(self.applies):
            room = width - 3 - sum(text.cell_len for text, _ in parts)
            gain, applies = verdict.partition(" by ")[0], verdict.rpartition("; ")[2]
            told = next((text for text in (verdict, f"{gain}; {applies}") if len(text) <= room), gain)
            parts.append(
                (styled(f"  {told}", palette.good if run.best and run.best.verdict.worth_applying else palette.text), 6)
            )
        elif best := run.best:
            latency = figures.brief_latency(best.latency_us, run.source, run.chip)
            speedup = best.speedup or (run.baseline_us or best.latency_us) / best.latency_us
            led = styled(f"  best {latency}", palette.text)
            won = palette.good if best.verdict is Verdict.CERTAIN else palette.text
            parts.append((led.append(f" {figures.brief_gain(speedup, best.verdict)}", won), 4))
            if leader := run.leader:
                told = f"  c{leader.id} {figures.speedup(run.speedup_of(leader))} unconfirmed"
                parts.append((styled(told, palette.warn), 2))
        text.append_text(whole(parts, width - 1))
        right = styled(_money(run, row), palette.muted)
        room = width - text.cell_len - right.cell_len - 1
        return (
            text.append(" " * room).append_text(right) if room >= 2 else text
        )  # the right part is shown whole or not at all

    def _banner_line(self, width: int) -> Text:
        session = self.session
        return styled(f" {' · '.join(filter(None, (session.banner, session.troubles)))}", self.palette.warn)

    def _slider_line(self, width: int) -> Text:
        replay, palette = self.session.replay, self.palette
        assert replay is not None
        return replay.line(width, palette)

    @on(Tab.Pressed)
    def _tab(self, message: Tab.Pressed) -> None:
        self.app.switch_mode(message.screen_name)

    # -- filter --------------------------------------------------------------------------------------------------

    def filtered(self, text: str) -> None:
        """Apply the new text of the filter. On a screen without a filter the text is searched for in the first
        list.
        """
        self.query_text = text
        if self.FILTERS:
            self.show()

    def matches(self, text: str) -> bool:
        """Tell whether every word of the filter occurs in ``text``."""
        return all(word in text.lower() for word in self.query_text.lower().split())

    def action_sort(self) -> None:
        self.sort = (self.sort + 1) % len(self.SORTS)
        self.show()

    def sort_by(self, column: Column | None) -> None:
        """Sort the list by the column whose header was clicked."""
        order = self.SORTED_BY.get(column.title) if column else None
        if order is not None:
            self.sort = self.SORTS.index(order)
            self.show()
        elif column is not None:
            self.notify(
                f"Lines can not be sorted by {column.title}. {key_of(self, 'sort')} sorts by: {', '.join(self.SORTS)}."
            )

    def open_event(self, event: Event | None) -> None:
        """Show the candidate that an event is about; for an event about no candidate, show the event's run."""
        if event is None or event.run is None:
            self.notify("The event is about no run.")
            return
        named = event.data.arguments.get("candidate") if isinstance(event.data, Steered) else None
        candidate = getattr(event.data, "candidate", None) or named
        self.select_run(event.run)
        if isinstance(candidate, int):
            self.session.candidate = candidate
        self.app.switch_mode("candidate" if isinstance(candidate, int) else "beam")

    def action_find(self, step: int) -> None:
        """Go to the next line with the text that was searched for; with ``step`` -1, to the previous such line."""
        lists = self.query(LineList)
        if not self.query_text or not lists:
            self.notify(f"Type {key_of(self, 'filter')} and a text first.", title="Nothing to search for")
        elif not lists.first().find(self.query_text, step):
            self.notify(f"No line holds {self.query_text!r}.", markup=False)

    def action_filter(self) -> None:
        box = self.query_one("#filter", Input)
        box.display = True
        box.focus()

    async def action_back(self) -> None:
        box = self.query_one("#filter", Input)
        if box.display:
            box.value = ""
            self._close_filter()
        else:
            await self.app.run_action("app.previous")

    @on(Input.Changed, "#filter")
    def _typed(self, message: Input.Changed) -> None:
        self.filtered(message.value)

    @on(Input.Submitted, "#filter")
    def _submitted(self) -> None:
        self._close_filter()
        if self.query_text and not self.FILTERS:
            self.action_find(1)

    def _close_filter(self) -> None:
        box = self.query_one("#filter", Input)
        box.display = bool(box.value) and self.FILTERS
        lists = self.query(LineList)
        if lists:
            lists.first().focus()


def best_line(run: RunView, width: int) -> str:
    """Return a sparkline of the best speed-up so far after each candidate, oldest on the left."""
    base = run.baseline_us
    if not base or not run.bests:
        return ""
    first, last = next(iter(run.candidates)), next(reversed(run.candidates))
    cells = max(1, min(width, len(run.candidates)))
    values, place = [], 0
    for cell in range(cells):
        upto = last if cell == cells - 1 else first + (last - first) * cell // (cells - 1)
        while place + 1 < len(run.bests) and run.bests[place + 1].candidate <= upto:
            place += 1
        values.append(base / run.bests[place].latency_us)
    return sparkline(values, cells)


def _money(run: RunView, row: RunRow | None) -> str:
    spent = max(run.cost_usd, (row.cost_usd or 0.0) if row else 0.0)
    cap = run.search.get("budget_usd")
    if run.proposer in PROPOSERS and not PROPOSERS[run.proposer].uses_models and not spent:
        return "no model cost"
    known = figures.usd(spent) + ("+?" if run.unpriced else "")
    return f"{known} of {figures.usd(cap)}" if cap else known
