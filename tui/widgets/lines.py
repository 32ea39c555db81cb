"""Show a list of lines for tables, trees, sources and logs. Only visible lines are drawn.

Each line has a key. The cursor stays on the line with its key when lines are added or removed. Drawing takes as
long for a hundred thousand lines as for a hundred.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from acceld.tui.palette import palette_of
from acceld.tui.widgets.bars import cut

Draw = Callable[[Hashable, int], Text]
"""A function that draws the line of a key at a given width."""


def drawn(widget: Widget, draw: Callable[..., Text], *arguments: Any) -> Text:
    """Return the text that ``draw`` returns. If ``draw`` raises an error, log it and return its message."""
    try:
        return draw(*arguments)
    except Exception as error:  # noqa: BLE001  one bad row must not end the console
        widget.log("can not draw", widget, arguments, error)
        return Text(f"can not be drawn: {type(error).__name__}: {error}", style=palette_of(widget.app).warn)


class LineList(ScrollView, can_focus=True):
    """List of lines with a cursor, and a header if one is given."""

    DEFAULT_CSS = """
    LineList { height: 1fr; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False, id="list.up"),
        Binding("down,j", "move(1)", "Down", show=False, id="list.down"),
        Binding("pageup", "page(-1)", "Page up", show=False, id="list.page-up"),
        Binding("pagedown", "page(1)", "Page down", show=False, id="list.page-down"),
        Binding("home,g", "jump(0)", "First", show=False, id="list.first"),
        Binding("end,G", "jump(-1)", "Last", show=False, id="list.last"),
        Binding("left", "sideways(-8)", "Left", show=False, id="list.left"),
        Binding("right", "sideways(8)", "Right", show=False, id="list.right"),
        Binding("enter", "choose", "Open", show=False, id="list.open"),
    ]

    class Moved(Message):
        """Message: the cursor is on another line."""

        def __init__(self, source: LineList, key: Hashable) -> None:
            super().__init__()
            self.source, self.key = source, key

        @property
        def control(self) -> LineList:
            """Return the list that sent the message."""
            return self.source

    class Chosen(Moved):
        """Message: a person opened a line."""

    class HeaderPressed(Message):
        """Message: the header was clicked, at the cell ``cell`` of a table of ``width`` cells."""

        def __init__(self, source: LineList, cell: int, width: int) -> None:
            super().__init__()
            self.source, self.cell, self.width = source, cell, width

        @property
        def control(self) -> LineList:
            """Return the list that sent the message."""
            return self.source

    def __init__(self, *, id: str | None = None, classes: str | None = None, empty: str = "", pointer: bool = True):
        super().__init__(id=id, classes=classes)
        self.empty = empty
        """Text shown for an empty list."""
        self._pointer = pointer
        self._keys: Sequence[Hashable] = ()
        self._draw: Draw = lambda key, width: Text(str(key))
        self._header: Callable[[int], Text] | None = None
        self._cursor = 0
        self._cache: dict[tuple[int, int], Strip] = {}
        self._follow = False

    @property
    def cursor(self) -> int:
        """Return the number of the cursor's line, from 0."""
        return self._cursor

    @property
    def key(self) -> Hashable | None:
        """Return the key of the cursor's line; None without lines."""
        return self._keys[self._cursor] if self._cursor < len(self._keys) else None

    @property
    def keys(self) -> Sequence[Hashable]:
        """Return the keys of all lines, in order."""
        return self._keys

    def show(
        self,
        keys: Sequence[Hashable],
        draw: Draw,
        *,
        header: Callable[[int], Text] | None = None,
        content_width: int = 0,
    ) -> None:
        """Replace all lines. The cursor stays on the line with its key. If no line has that key any more, the cursor
        stays near its former position.
        """
        before, old = self.key, self._cursor
        same = keys == self._keys
        self._keys, self._draw, self._header = keys, draw, header
        self._cache.clear()
        if not same:
            if self._follow:
                self._cursor = max(0, len(keys) - 1)
            elif before is not None and not (old < len(keys) and keys[old] == before):
                try:
                    self._cursor = keys.index(before)
                except ValueError:
                    self._cursor = min(old, max(0, len(keys) - 1))
        size = Size(max(content_width, 0), len(keys) + bool(header))
        if size != self.virtual_size:
            self.virtual_size = size
        if self._follow and not same:
            self._reveal()
        if self.key is not None and self.key != before:
            self.post_message(self.Moved(self, self.key))
        self.refresh()

    def show_lines(self, lines: Sequence[Text], *, content_width: int = 0) -> None:
        """Replace all lines by the texts ``lines``, which are drawn already. The key of a line is its position, from 0.

        ``content_width`` is the width in cells up to which a person can scroll sideways.
        """
        self.show(range(len(lines)), lambda place, _: lines[int(str(place))].copy(), content_width=content_width)

    def follow(self, on: bool) -> None:
        """Keep the cursor on the last line when lines are added, or stop doing so."""
        self._follow = on
        if on:
            self.move_to(len(self._keys) - 1)

    def redraw(self) -> None:
        """Draw the lines again, because what they show has changed."""
        self._cache.clear()
        self.refresh()

    def move_to(self, line: int) -> None:
        """Move the cursor to the line with this number."""
        line = min(max(0, line), max(0, len(self._keys) - 1))
        if line != self._cursor or not self._cache:
            self._cursor = line
            self._cache.clear()
            self.refresh()
            if self._keys:
                self.post_message(self.Moved(self, self._keys[line]))
        self._reveal()

    def move_to_key(self, key: Hashable) -> bool:
        """Move the cursor to the line with this key. Return False if no line has this key."""
        try:
            self.move_to(self._keys.index(key))
        except ValueError:
            return False
        return True

    def find(self, text: str, step: int) -> bool:
        """Move the cursor to the next line that contains ``text`` in any case; with ``step`` -1, to the previous such
        line. Return False if no line contains it.
        """
        room, count = max(self.virtual_size.width, self.size.width, 1), len(self._keys)
        at = self._cursor if self._pointer else round(self.scroll_y)
        for away in range(1, count + 1):
            line = (at + step * away) % count
            if text.lower() in drawn(self, self._draw, self._keys[line], room).plain.lower():
                if self._pointer:
                    self.move_to(line)
                else:
                    self.scroll_to(y=line, animate=False)
                return True
        return False

    def _reveal(self) -> None:
        height = 1 + bool(self._header)
        self.scroll_to_region(
            Region(self.scroll_offset.x, self._cursor, 1, height), animate=False, force=True, immediate=True
        )

    def render_line(self, y: int) -> Strip:
        """Return line ``y`` of what the widget shows, from 0."""
        width = self.scrollable_content_region.width
        if self._header is not None and y == 0:
            head = drawn(self, self._header, width - 2 if self._pointer else width)
            head = Text.assemble("  ", head) if self._pointer else head
            return self._strip(head, width, Style(bold=True))
        index = y + self.scroll_offset.y - bool(self._header)
        if self._header is not None and self.scroll_offset.y:
            index = y + self.scroll_offset.y - 1
        if not self._keys and y == bool(self._header):
            return self._strip(Text(f"  {self.empty}", style=palette_of(self.app).muted), width, Style())
        if not 0 <= index < len(self._keys):
            return Strip.blank(width, self.rich_style)
        cached = self._cache.get((index, width))
        if cached is None:
            on = self._pointer and index == self._cursor
            room = max(self.virtual_size.width, width) - (2 if self._pointer else 0)
            text = drawn(self, self._draw, self._keys[index], room)
            style = Style()
            if on:
                palette = palette_of(self.app)
                style = palette.cursor if self.has_focus else palette.cursor_idle
            if self._pointer:
                text = Text.assemble("› " if on else "  ", text)
            text.stylize(style)  # over the text's own styles
            cached = self._cache[(index, width)] = self._strip(text, width, style)
        return cached

    def _strip(self, text: Text, width: int, style: Style) -> Strip:
        text.no_wrap = True
        text.end = ""
        if "\n" in text.plain:
            text.plain = text.plain.replace("\n", " ")
        left = self.scroll_offset.x
        text = _ending(text, left + width, palette_of(self.app).muted)
        segments: list[Segment] = list(text.render(self.app.console))
        strip = Strip(segments).crop_extend(left, left + width, None)
        return strip.apply_style(self.rich_style + style)

    def watch_scroll_x(self, old: float, new: float) -> None:
        super().watch_scroll_x(old, new)
        self._cache.clear()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._cache.clear()

    def on_focus(self) -> None:
        self.redraw()

    def on_blur(self) -> None:
        self.redraw()

    def on_resize(self) -> None:
        self._cache.clear()
        if self._keys:
            self._reveal()

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the clicked line. If the cursor is there already, open the line."""
        place = event.get_content_offset(self)
        if place is None:
            return
        if self._header is not None and place.y == 0:
            mark = 2 if self._pointer else 0
            width = self.scrollable_content_region.width - mark
            self.post_message(self.HeaderPressed(self, place.x - mark, width))
            return
        line = place.y + self.scroll_offset.y - bool(self._header)
        if not 0 <= line < len(self._keys):
            return
        if line == self._cursor and self.has_focus:
            self.action_choose()
        else:
            self.move_to(line)

    def action_move(self, lines: int) -> None:
        self._follow = False
        if not self._pointer:
            self.scroll_relative(y=lines, animate=False)
            return
        self.move_to(self._cursor + lines)

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.size.height - 2))

    def action_jump(self, line: int) -> None:
        self._follow = False
        if not self._pointer:
            self.scroll_to(y=self.max_scroll_y if line < 0 else 0, animate=False)
            return
        self.move_to(len(self._keys) - 1 if line < 0 else line)

    def action_sideways(self, cells: int) -> None:
        self.scroll_relative(x=cells, animate=False)

    def action_choose(self) -> None:
        if self.key is not None:
            self.post_message(self.Chosen(self, self.key))


def _ending(text: Text, edge: int, style: Style) -> Text:
    """Return a line cut to ``edge`` cells. A line that is cut ends with a mark, and is not cut inside a number."""
    plain = text.plain.rstrip()
    if cell_len(plain) <= edge:
        return text
    if cell_len(plain) != len(plain):  # some characters are two cells wide
        text.truncate(edge, overflow="ellipsis")
        return text
    return text[: cut(plain, edge)].append("…", style)
