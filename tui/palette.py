"""Derive all styles of the UI from the current theme."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.style import Style
from rich.text import Text
from textual.app import App
from textual.color import Color, ColorParseError
from textual.theme import Theme

from acceld.model import Status

THEMES = (
    Theme(
        name="acceld",
        primary="#7aa2c8",
        secondary="#8f9fb3",
        accent="#d7a65f",
        success="#8fbf7f",
        warning="#d9b25f",
        error="#d9777a",
        foreground="#d5d9e0",
        background="#15171b",
        surface="#1a1d22",
        panel="#282c33",
        variables={"footer-background": "#1a1d22", "footer-key-foreground": "#d7a65f"},
    ),
    Theme(
        name="acceld-light",
        primary="#2f6592",
        secondary="#5f6b7a",
        accent="#96590d",
        success="#3b7a2c",
        warning="#8f6400",
        error="#b03a3e",
        foreground="#23272e",
        background="#fbfaf7",
        surface="#f4f2ed",
        panel="#e8e5de",
        dark=False,
        variables={"footer-background": "#f4f2ed", "footer-key-foreground": "#96590d"},
    ),
)


_REVERSED = Style(reverse=True, color="default", dim=False)
"""Style of the cursor's line in themes with the terminal's own colors: foreground and background exchanged, without the
colors of the words. A reversed color would be a bar, and reversed grey is hard to read.
"""


@dataclass(frozen=True, slots=True)
class Palette:
    """Styles of the UI by meaning, such as ``good`` and ``warn``. A symbol or a word stands beside each color, so
    nothing depends on color alone.
    """

    text: Style
    muted: Style
    strong: Style
    good: Style
    warn: Style
    bad: Style
    accent: Style
    primary: Style
    cursor: Style
    cursor_idle: Style
    added: Style
    removed: Style

    def status(self, status: Status | None) -> Style:
        """Return the style of a candidate's status."""
        match status:
            case Status.PASSED:
                return self.good
            case Status.SUSPECT | Status.TIMEOUT:
                return self.warn
            case None | Status.UNTESTED | Status.UNCHECKED | Status.UNSUPPORTED:
                return self.muted
            case _:
                return self.bad

    def state(self, state: str) -> Style:
        """Return the style of the state of a run or a device."""
        return {
            "running": self.good,
            "busy": self.good,
            "paused": self.warn,
            "cancelling": self.warn,
            "failed": self.bad,
            "lost": self.bad,
            "sick": self.bad,
            "cancelled": self.muted,
            "finished": self.text,
        }.get(state, self.muted)

    def level(self, level: str) -> Style:
        """Return the style of a notice's level."""
        return {"error": self.bad, "warning": self.warn}.get(level, self.text)


def palette_of(app: App[object]) -> Palette:
    """Return the styles of the current theme."""
    values = app.theme_variables
    ansi = app.current_theme.ansi

    def style(name: str, *, bold: bool | None = None) -> Style:
        return Style(color=_color(values, name), bold=bold)

    def background(name: str, fallback: Style) -> Style:
        color = _color(values, name)
        return fallback if ansi or color is None else Style(bgcolor=color)

    return Palette(
        text=Style(),
        muted=Style(dim=True) if ansi else style("secondary"),
        strong=Style(bold=True),
        good=style("success"),
        warn=style("warning"),
        bad=style("error"),
        accent=style("accent", bold=True),
        primary=style("primary"),
        cursor=background("panel", _REVERSED),
        cursor_idle=background("surface", Style()),
        added=style("success"),
        removed=style("error"),
    )


def _color(values: Mapping[str, str], name: str) -> str | None:
    try:
        rich_color = Color.parse(values[name]).rich_color
    except (KeyError, ColorParseError):
        return None
    return rich_color.name


def styled(text: str, style: Style) -> Text:
    """Return ``text`` in a style that appended text does not inherit."""
    return Text().append(text, style)
