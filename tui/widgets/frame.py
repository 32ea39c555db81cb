"""Draw the frame of every screen: tabs, a line about the run in view, and a banner."""

from __future__ import annotations

from collections.abc import Callable

from rich.cells import cell_len
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Footer, Static
from textual.widgets._footer import FooterKey

from acceld.tui.widgets.lines import drawn

TABS = (
    ("runs", "Runs"),
    ("beam", "Beam"),
    ("candidate", "Candidate"),
    ("queue", "Queue"),
    ("memory", "Memory"),
    ("costs", "Costs"),
    ("profile", "Profile"),
    ("logs", "Logs"),
    ("query", "Query"),
)
"""Screens by name, in the order of their keys 1 to 9."""


BESIDE_PALETTE = 2
"""Cells that the palette's key takes in addition to its text: a line on the left, a space on the right."""


class Tab(Static):
    """Clickable name of a screen."""

    DEFAULT_CSS = """
    Tab { width: auto; padding: 0 1; color: $secondary; }
    Tab:hover { background: $panel; }
    Tab.-on { color: $accent; text-style: bold; }
    """

    class Pressed(Message):
        """Message: a tab was clicked."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.screen_name = name

    def __init__(self, number: int, screen: str, title: str, on: bool) -> None:
        super().__init__(f"{number} {title}", markup=False, classes="-on" if on else "")
        self.screen_name = screen

    def on_click(self) -> None:
        self.post_message(self.Pressed(self.screen_name))


class Tabs(Horizontal):
    """Line with the names of all screens."""

    DEFAULT_CSS = "Tabs { height: 1; background: $surface; }"

    def __init__(self, current: str) -> None:
        super().__init__()
        self._current = current

    def compose(self) -> ComposeResult:
        for number, (name, title) in enumerate(TABS, 1):
            yield Tab(number, name, title, name == self._current)


class Line(Static):
    """Line of text that is drawn again when its width changes."""

    DEFAULT_CSS = "Line { height: 1; }"

    def __init__(self, draw: Callable[[int], Text], *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._draw = draw

    def render(self) -> Text:
        text = drawn(self, self._draw, self.size.width)
        text.no_wrap = True
        text.truncate(self.size.width, overflow="ellipsis")
        return text


class Keys(Footer):
    """Line with the keys of a screen.

    A key is left out if it does not fit as a whole beside the key of the palette.
    """

    def __init__(self) -> None:
        super().__init__(compact=True)
        self._made: list[tuple[object, ...]] = []

    async def recompose(self) -> None:
        """Make the keys again, but only if they have changed, because making them takes longer than drawing a screen."""
        keys = [(key, one.binding, one.enabled, one.tooltip) for key, one in self.screen.active_bindings.items()]
        if keys != self._made:
            self._made = [*keys]
            await super().recompose()
            self._hide_cut()

    def on_resize(self) -> None:
        self._hide_cut()

    def _hide_cut(self) -> None:
        """Hide each key that does not fit.

        Widths are computed from the keys' texts, because Textual does not lay out keys beyond the window's edge.
        """
        widths = {key: cell_len(f"{key.key_display} {key.description}") for key in self.query(FooterKey)}
        end = self.app.size.width - sum(
            BESIDE_PALETTE + width for key, width in widths.items() if key.has_class("-command-palette")
        )
        at = 0
        for key, width in widths.items():
            if not key.has_class("-command-palette"):
                key.visible = at + width <= end
                at += width + 1


class Panel(Static):
    """Block of text that is drawn again when its size changes."""

    DEFAULT_CSS = "Panel { padding: 0 1; }"

    def __init__(self, draw: Callable[[int, int], Text], *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._draw = draw

    def render(self) -> Text:
        text = drawn(self, self._draw, max(1, self.content_size.width), max(1, self.content_size.height))
        text.no_wrap = True
        return text
