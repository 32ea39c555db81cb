"""Query the history by SQL: the database's tables, a statement, and its rows."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from rich.text import Text
from textual import events, on
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.message import Message
from textual.widgets import TextArea

from acceld import config, figures
from acceld.errors import AcceldError
from acceld.tui.modals import Ask
from acceld.tui.palette import palette_of, styled
from acceld.tui.screens.base import ConsoleScreen
from acceld.tui.session import Session
from acceld.tui.sql import completions
from acceld.tui.terminal import copy, key_of
from acceld.tui.widgets.bars import fitted
from acceld.tui.widgets.frame import Line
from acceld.tui.widgets.lines import LineList
from acceld.tui.work import start

FIRST = "SELECT * FROM history ORDER BY id DESC LIMIT 100"
WIDEST = 60
"""Limit on the cells of a column. A copied or exported value is whole."""
ROWS = 1000
POINTER = 2
"""Cells of the mark beside the row under the cursor."""
LEAST = 16
"""Least width in cells to which a column of text is cut. A column that would get less room is not shown."""
TIME_LIMIT_S = 30


class Statement(TextArea):
    """Editor for an SQL statement, which colors it and completes words, tables and columns."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "complete", "Complete", id="query.complete"),
        Binding("escape", "screen.back", "Back", id="back"),
    ]

    def __init__(self) -> None:
        super().__init__(FIRST, id="sql", compact=True, soft_wrap=True)
        self.tables: Mapping[str, Sequence[str]] = {}

    def get_line(self, line_index: int) -> Text:
        palette = palette_of(self.app)
        from pygments.lexers.sql import SqlLexer  # type: ignore[import-untyped]  # not needed for the first picture
        from pygments.token import Comment, Keyword, Number, String  # type: ignore[import-untyped]

        styles = ((Comment, palette.muted), (Keyword, palette.primary), (String, palette.good), (Number, palette.warn))
        text = Text(end="", no_wrap=True)
        for kind, value in SqlLexer(stripnl=False, ensurenl=False).get_tokens(self.document.get_line(line_index)):
            text.append(value, next((style for known, style in styles if kind in known), ""))
        return text

    @property
    def choices(self) -> list[str]:
        """Return the words that may complete the text before the cursor, without the part that is typed already."""
        row, column = self.cursor_location
        line = self.document.get_line(row)
        if re.match(r"\w", line[column:]):
            return []
        return completions(self.get_text_range((0, 0), (row, column)), self.text, self.tables)

    def check_consume_key(self, key: str, character: str | None = None) -> bool:
        if key == "question_mark" and not self._in_text():
            return False
        return key == "slash" or super().check_consume_key(key, character)

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "question_mark" and not self._in_text():
            event.stop()
            event.prevent_default()  # otherwise the editor's own handler inserts the character
            await self.app.run_action("help")

    def _in_text(self) -> bool:
        """Tell whether the cursor is in a quoted text, the only place of a statement where a question mark may
        stand.
        """
        before = self.get_text_range((0, 0), self.cursor_location)
        return before.count("'") % 2 == 1 or before.count('"') % 2 == 1

    def update_suggestion(self) -> None:
        self.suggestion = next(iter(self.choices), "")

    def action_complete(self) -> None:
        if choices := self.choices:
            self.insert(choices[0])
        else:
            self.screen.focus_next()


class Rows(LineList):
    """List of rows that can be moved sideways by whole columns."""

    first = 0

    def action_sideways(self, cells: int) -> None:
        self.first = max(0, self.first + (1 if cells > 0 else -1))
        self.post_message(self.Sideways())

    class Sideways(Message):
        """Message: another column is now the first visible one."""


class QueryScreen(ConsoleScreen):
    """Screen with the database's tables on the left, and a statement above its rows."""

    NAME = "query"
    AUTO_FOCUS: ClassVar[str | None] = "#sql"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+r", "run", "Run", id="query.run"),
        Binding("ctrl+s", "save", "Save", id="query.save"),
        Binding("i", "edit", "Edit", id="query.edit"),
        Binding("w", "export", "Write to a file", id="query.export"),
        Binding("y", "copy", "Copy row", id="copy"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._tables: dict[str, list[str]] = {}
        self._open: set[str] = set()
        self._saved: dict[str, tuple[str, str]] = {}
        """Description and SQL of each saved query. The description of a person's own query is empty."""
        self._columns: list[str] = []
        self._rows: list[list[Any]] = []
        self._widths: list[int] = []
        self._right: list[bool] = []
        self._times: set[int] = set()

    def body(self) -> Iterable[Any]:
        with Container(id="split"):
            with Vertical(id="asked"):
                yield Statement()
                yield Line(self._next_words, id="words")
                yield Rows(id="rows", empty=f"Nothing asked yet: {key_of(self, 'run')} runs the statement.")
            with Vertical(id="schema"):
                yield LineList(id="tables")
                yield LineList(id="saved")

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one("#sql").border_title = "SQL, read-only"
        self.fetch("/v1/tables", self._take_tables)
        self.fetch("/v1/history", self._take_saved)

    def show(self) -> None:
        tables = self.query_one("#tables", LineList)
        keys: list[Hashable] = []
        for name, columns in self._tables.items():
            keys += [("table", name), *(("column", name, one) for one in columns if name in self._open)]
        tables.border_title = f"Tables and views {len(self._tables)}" if self._tables else "Tables and views"
        tables.empty = self.nothing("There are no tables.", "tables")
        tables.show(keys, self._schema_line)
        saved = self.query_one("#saved", LineList)
        saved.border_title = "Saved"
        saved.empty = self.nothing("No query is saved.", "history")
        saved.show(list(self._saved), self._saved_line)
        rows = self.query_one(Rows)
        rows.first = min(rows.first, max(0, len(self._columns) - 1))
        header = (lambda width: self._cells(self._columns, width, header=True)) if self._columns else None
        rows.show(range(len(self._rows)), self._row, header=header)
        rows.border_subtitle = self._shown_columns(rows)
        self.query_one("#words").refresh()
        self.query_one("#sql").border_subtitle = f"{key_of(self, 'run')} runs, tab completes, esc leaves"

    def on_resize(self) -> None:
        rows = self.query_one(Rows)
        self.call_after_refresh(lambda: setattr(rows, "border_subtitle", self._shown_columns(rows)))

    def _shown_columns(self, rows: Rows) -> str:
        """Return the names of the visible columns; empty if all columns are visible."""
        count = len(self._columns)
        last = rows.first + len(self._in_view(rows.scrollable_content_region.width - POINTER))
        return (
            f"columns {rows.first + 1} to {last} of {count}, → for more"
            if count and (rows.first or last < count)
            else ""
        )

    # -- drawing -------------------------------------------------------------------------------------------------

    def _schema_line(self, key: Hashable, width: int) -> Text:
        assert isinstance(key, tuple)
        if key[0] == "column":
            return styled(f"    {key[2]}", self.palette.muted)
        mark = "▾" if key[1] in self._open else "▸"
        return styled(f"{mark} ", self.palette.muted).append(str(key[1]), self.palette.text)

    def _saved_line(self, key: Hashable, width: int) -> Text:
        about = fitted(self._saved[str(key)][0] or "yours", max(1, width - len(str(key)) - 2))
        return styled(str(key), self.palette.text).append(f"  {about}", self.palette.muted)

    def _next_words(self, width: int) -> Text:
        statement = self.query_one(Statement)
        begun = re.search(r"\w*$", statement.get_text_range((0, 0), statement.cursor_location))
        choices = statement.choices if statement.has_focus else []
        text = Text(" ")
        for place, rest in enumerate(choices):
            word = f"{begun[0] if begun else ''}{rest}"
            if text.cell_len + len(word) + 2 > width:
                break
            text.append(f"{word}  ", self.palette.accent if place == 0 else self.palette.muted)
        return text

    def _row(self, key: Hashable, width: int) -> Text:
        return self._cells(self._rows[int(str(key))], width)

    def _cells(self, values: Sequence[Any], width: int, *, header: bool = False) -> Text:
        """Return the cells of a row, as many whole columns as fit into ``width``. Only the first column is cut if it
        does not fit.
        """
        text = Text()
        for place, size in self._in_view(width).items():
            value = values[place]
            style = self.palette.muted if header or value is None else self.palette.text
            cell = fitted(figures.cell(value, WIDEST), size)
            text.append((cell.rjust(size) if self._right[place] else cell.ljust(size)) + "  ", style)
        return text

    def _in_view(self, width: int) -> dict[int, int]:
        """Return the visible columns by position, with the cells of each. Numbers and times are never cut."""
        first, used, found = self.query_one(Rows).first, 0, {}
        for place in range(first, len(self._columns)):
            size, left = self._widths[place], width - used
            if place > first and size > left and (left < LEAST or self._right[place] or place in self._times):
                break
            found[place] = min(size, max(1, left))
            used += found[place] + 2
        return found

    # -- answers -------------------------------------------------------------------------------------------------

    def _take_tables(self, answer: Mapping[str, Any]) -> None:
        self._tables = {one["name"]: one["columns"] for one in answer["tables"]}
        self.query_one(Statement).tables = self._tables
        self.show()

    def _take_saved(self, answer: Mapping[str, Any]) -> None:
        self._saved = {one["name"]: (one["about"], one["sql"]) for one in answer["saved"]}
        folder = own_queries()
        for file in sorted(folder.glob("*.sql")) if folder else ():
            self._saved[file.stem] = ("", file.read_text(encoding="utf-8", errors="replace"))
        self.show()

    def _take_rows(self, answer: Mapping[str, Any]) -> None:
        self._columns = answer["columns"]
        times = self._times = {
            place for place, name in enumerate(self._columns) if name == "at" or name.endswith("_at")
        }
        self._rows = [
            [figures.moment(value) if place in times else value for place, value in enumerate(row)]
            for row in answer["rows"]
        ]
        columns = [[row[place] for row in self._rows] for place in range(len(self._columns))]
        self._right = [
            all(isinstance(one, int | float | None) for one in column) and bool(column) for column in columns
        ]
        self._widths = [
            max([len(name), *(len(figures.cell(one, WIDEST)) for one in column)])
            for name, column in zip(self._columns, columns, strict=True)
        ]
        more = f", the first {len(self._rows)}" if answer.get("truncated") else ""
        self._say("No row matches.", f"{figures.many(len(self._rows), 'row')}{more}")

    def _say(self, empty: str, title: str) -> None:
        rows = self.query_one("#rows", LineList)
        rows.empty, rows.border_title = empty, title
        self.show()

    # -- keys ----------------------------------------------------------------------------------------------------

    def action_run(self) -> None:
        statement = self.query_one(Statement)
        asked, sql = (self.focused, statement.text), statement.text.strip().rstrip(";")
        if not sql:
            self._say("Write a statement first.", "")
            return

        async def ask() -> None:
            body = {"sql": sql, "limit": ROWS, "time_limit_s": TIME_LIMIT_S}
            try:
                answer = await self.session.client.send("POST", "/v1/query", body)
            except AcceldError as error:
                self._columns, self._rows = [], []
                self._say("\n".join(filter(None, (error.message, error.hint))), "failed")
            else:
                self._take_rows(answer)
                if (
                    self._rows and (self.focused, statement.text) == asked
                ):  # otherwise the person has moved or typed meanwhile
                    self.query_one("#rows").focus()

        self._columns, self._rows = [], []
        self._say(f"asking, for at most {TIME_LIMIT_S} s", "asking")
        start(self, ask, group="query", exclusive=True)

    @on(TextArea.Changed)
    @on(TextArea.SelectionChanged)
    def _show_words(self) -> None:
        self.query_one("#words").refresh()

    @on(Rows.Sideways)
    def _sideways(self) -> None:
        self.show()

    @on(LineList.Chosen, "#tables")
    def _chosen(self, message: LineList.Chosen) -> None:
        assert isinstance(message.key, tuple)
        if message.key[0] == "table":
            self._open ^= {str(message.key[1])}
            self.show()
        else:
            statement = self.query_one(Statement)
            statement.insert(str(message.key[2]))
            statement.focus()

    @on(LineList.Chosen, "#saved")
    def _saved_chosen(self, message: LineList.Chosen) -> None:
        self.query_one(Statement).load_text(self._saved[str(message.key)][1])
        self.action_run()

    def action_edit(self) -> None:
        self.query_one(Statement).focus()

    async def action_back(self) -> None:
        if self.query_one(Statement).has_focus:
            self.query_one("#rows").focus()
        else:
            await super().action_back()

    def action_save(self) -> None:
        folder, sql = own_queries(), self.query_one(Statement).text

        def save(name: str | None) -> None:
            if not name or folder is None:
                return
            if not re.fullmatch(r"[\w-]+", name):
                self.notify("A name has letters, digits, - and _.", severity="warning")
                return
            if name in self._saved and self._saved[name][0]:
                self.notify(f"{name} is a query of acceld's own: choose another name.", severity="warning")
                return
            file = folder / f"{name}.sql"
            if self._write(file, sql):
                self._saved[name] = ("", sql)
                self.show()

        self.app.push_screen(Ask("Save the statement under which name?", "such as slow-kernels"), save)

    def action_export(self) -> None:
        if not self._columns:
            self.notify(f"Run a statement first: {key_of(self, 'run')}.", title="Nothing to write", severity="warning")
            return

        def export(name: str | None) -> None:
            if name:
                file = Path(name).expanduser().absolute()
                self._write(file, exported(file.suffix, self._columns, self._rows))

        self.app.push_screen(Ask("Write the rows to which file?", "rows.csv, rows.jsonl or rows.md"), export)

    def _write(self, file: Path, text: str) -> bool:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            self.notify(f"{file}: {error.strerror}", severity="error", markup=False)
            return False
        self.notify(f"written: {file}", markup=False)
        return True

    def action_copy(self) -> None:
        key = self.query_one("#rows", LineList).key
        if isinstance(key, int):
            copy(self.app, "\t".join(figures.cell(value, None) for value in self._rows[key]), "row")


def own_queries() -> Path | None:
    """Return the folder with a person's own queries, one file ``NAME.sql`` each; None if there is no home
    folder.
    """
    file = config.user_file(os.environ)
    return file.parent / "queries" if file else None


def exported(suffix: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return rows as text for a file with the ending ``suffix``: JSON lines for ``.jsonl``, a Markdown table
    for ``.md``, else comma separated values.
    """
    if suffix == ".jsonl":
        return "".join(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n" for row in rows)
    if suffix == ".md":
        lines = [
            columns,
            ["---"] * len(columns),
            *([figures.cell(one, None).replace("|", "\\|") for one in row] for row in rows),
        ]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    return text.getvalue()
