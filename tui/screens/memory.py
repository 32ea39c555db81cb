"""Show the optimization memory: each insight, what taught it, and how often it won."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, ClassVar

from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal

from acceld import figures
from acceld.errors import AcceldError
from acceld.tui.modals import Ask, Confirm
from acceld.tui.palette import styled
from acceld.tui.screens.base import ConsoleScreen
from acceld.tui.session import Session
from acceld.tui.terminal import complain, copy
from acceld.tui.widgets.code import colored
from acceld.tui.widgets.columns import Column, column_at, header, line
from acceld.tui.widgets.frame import Panel
from acceld.tui.widgets.lines import LineList
from acceld.tui.work import start

COLUMNS = (
    Column("id", 5, keep=9),
    Column("title", 20, keep=9, stretch=True),
    Column("kind", 8, keep=4),
    Column("gain", 6, keep=8, right=True),
    Column("used", 5, keep=6, right=True),
    Column("win %", 5, keep=7, right=True),
    Column("from", 14, keep=3),
    Column("mark", 10, keep=5),
)


class MemoryScreen(ConsoleScreen):
    """Screen with the insights. Each is shown with the slow and the fast kernel that taught it."""

    NAME = "memory"
    AUTO_FOCUS: ClassVar[str | None] = "#insights"
    WANTS = frozenset({"insights"})
    FILTERS = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "change('pinned')", "Pin", id="insight.pin"),
        Binding("m", "change('muted')", "Mute", id="insight.mute"),
        Binding("w", "change('withdrawn')", "Withdraw", show=False, id="insight.withdraw"),
        Binding("e", "edit", "Edit", id="insight.edit"),
        Binding("X", "delete", "Delete", show=False, id="insight.delete"),
        Binding("o", "sort", "Sort", show=False, id="insight.sort"),
        Binding("y", "copy", "Copy", show=False, id="copy"),
    ]
    SORTS: ClassVar[tuple[str, ...]] = ("newest", "gain", "used", "win rate")
    SORTED_BY: ClassVar[Mapping[str, str]] = {"id": "newest", "gain": "gain", "used": "used", "win %": "win rate"}

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._insights: dict[int, Mapping[str, Any]] = {}
        self._seen = -1

    def body(self) -> Iterable[Any]:
        with Container(id="split"):
            yield LineList(id="insights")
            with Container(id="insight"):
                yield Panel(self._text, id="strategy")
                with Horizontal(id="pair"):
                    yield LineList(id="slow", pointer=False, empty="")
                    yield LineList(id="fast", pointer=False, empty="")

    def show(self) -> None:
        seq = self.session.state.seq
        if seq != self._seen and self.session.replay is None:
            self._seen = seq
            words = {"q": self.query_text} if self.query_text else {}
            self.fetch("/v1/insights", self._take, limit=500, **words)
        self._list()

    def _take(self, answer: Mapping[str, Any]) -> None:
        self._insights = {row["id"]: row for row in answer["insights"]}
        self._list()

    def _list(self) -> None:
        rows = sorted(self._insights.values(), key=self._order)
        palette = self.palette
        insights = self.query_one("#insights", LineList)
        none_yet = "No insight yet. Models write insights, rewrite rules do not."
        insights.empty = self.nothing("No insight has these words." if self.query_text else none_yet, "insights")
        insights.border_title = f"Insights {len(rows)}"
        insights.border_subtitle = f"by {self.SORTS[self.sort]}" if self.sort else ""
        insights.show([row["id"] for row in rows], self._row, header=lambda w: header(COLUMNS, w, palette.muted))
        self._pair()

    def _order(self, row: Mapping[str, Any]) -> Any:
        value = {1: row.get("speedup"), 2: row.get("uses"), 3: row.get("win_rate")}.get(self.sort)
        return (not row.get("pinned"), -(value or 0.0), -row["id"])

    def _row(self, key: Hashable, width: int) -> Text:
        palette, row = self.palette, self._insights.get(int(str(key)), {})
        if not row:
            return Text("")
        marks = [name for name in ("pinned", "muted", "withdrawn") if row.get(name)]
        marks += ["hypothesis"] if figures.is_hypothesis(row) else []
        rate = row.get("win_rate")
        good = row.get("kind") == "positive"
        cells = [
            (f"i{row['id']}", palette.strong),
            (row["title"], palette.muted if "muted" in marks or "withdrawn" in marks else palette.text),
            ("✓ faster" if good else "≠ slower", palette.text if good else palette.warn),
            (figures.speedup(row.get("speedup")), palette.text),
            (str(row.get("uses") or 0), palette.muted),
            (f"{100 * rate:.0f}" if rate is not None and row.get("uses") else "—", palette.text),
            (f"c{row['slow_candidate']}→c{row['fast_candidate']}" if row.get("fast_candidate") else "—", palette.muted),
            (", ".join(marks), palette.accent),
        ]
        return line(COLUMNS, cells, width)

    @property
    def _chosen(self) -> Mapping[str, Any]:
        key = self.query_one("#insights", LineList).key
        return self._insights.get(key, {}) if isinstance(key, int) else {}

    def _text(self, width: int, height: int) -> Text:
        row, palette = self._chosen, self.palette
        if not row:
            return Text("")
        text = styled(f"i{row['id']} {row['title']}\n", palette.strong)
        where = figures.held_on(row.get("held") or ()) or " · ".join(
            row[name] for name in ("chip", "api") if row.get(name)
        )
        bound = f"bound by {row['bound']}" if row.get("bound") else ""
        band = f"a tie within {row['tie_percent']:.0f} %" if row.get("tie_percent") is not None else ""
        taught = f"r{row['run']} it {row.get('iteration')}" if row.get("run") else ""
        facts = [taught, row.get("change"), row.get("dtype"), bound, band]
        text.append(" · ".join(fact for fact in facts if fact) + "\n", palette.muted)
        text.append(f"{where}\n", palette.muted)
        text.append(figures.memory_did(row) + "\n", palette.muted)
        text.append(row.get("strategy") or "")
        return Text("\n").join(list(text.wrap(self.app.console, width))[: max(1, height)])

    @on(LineList.HeaderPressed, "#insights")
    def _header_pressed(self, message: LineList.HeaderPressed) -> None:
        self.sort_by(column_at(COLUMNS, message.width, message.cell))

    @on(LineList.Moved, "#insights")
    def _pair(self) -> None:
        row = self._chosen
        self.query_one("#strategy").refresh()
        for name in ("slow", "fast"):
            lines = colored(row.get(name) or "", self.palette) if row else []
            pane = self.query_one(f"#{name}", LineList)
            pane.border_title = name
            pane.show_lines(lines, content_width=max((one.cell_len for one in lines), default=0))

    def filtered(self, text: str) -> None:
        self._seen = -1
        super().filtered(text)

    def _send(self, method: str, body: Mapping[str, Any] | None, done: str) -> None:
        row, client = self._chosen, self.session.client
        if not row or self.session.read_only:
            return

        async def send() -> None:
            try:
                await client.send(method, f"/v1/insights/{row['id']}", body)
            except AcceldError as error:
                complain(self.app, error)
                return
            self._seen = -1
            self.show()
            self.notify(f"i{row['id']} {done}; runs follow the change from their next iteration on")

        start(self, send)

    def action_change(self, mark: str) -> None:
        on = not self._chosen.get(mark)
        self._send("PATCH", {mark: on}, mark if on else f"no longer {mark}")

    def action_edit(self) -> None:
        if self._chosen:
            ask = Ask(
                f"Strategy of i{self._chosen['id']}",
                "what the planner should read",
                [self._chosen.get("strategy") or ""],
            )
            self.app.push_screen(ask, lambda text: self._send("PATCH", {"strategy": text}, "edited") if text else None)

    def action_delete(self) -> None:
        if self._chosen:
            ask = Confirm(f"Forget i{self._chosen['id']}: {self._chosen['title']}?", "Delete the insight")
            self.app.push_screen(ask, lambda yes: self._send("DELETE", None, "forgotten") if yes else None)

    def action_copy(self) -> None:
        if self._chosen:
            copy(self.app, f"{self._chosen['title']}\n\n{self._chosen.get('strategy')}", "insight")
