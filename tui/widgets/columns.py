"""Fit the columns of a table into any width, by leaving out the least important ones. The functions are pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.style import Style
from rich.text import Text

from acceld.tui.widgets.bars import fitted

GAP = 2


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. Columns with a low ``keep`` are left out first."""

    title: str
    width: int
    keep: int = 0
    right: bool = False
    stretch: bool = False
    """True if the column takes the remaining width."""


def fit(columns: Sequence[Column], width: int) -> dict[int, int]:
    """Return the columns that fit into ``width`` cells, as a dict by position, with the cells of each."""
    chosen = set(range(len(columns)))

    def need() -> int:
        return sum(columns[i].width for i in chosen) + GAP * (len(chosen) - 1)

    while len(chosen) > 1 and need() > width:
        chosen.remove(min(chosen, key=lambda i: (columns[i].keep, -i)))
    widths = {i: columns[i].width for i in sorted(chosen)}
    for i in widths:
        if columns[i].stretch:
            widths[i] += max(0, width - need())
            break
    return widths


def column_at(columns: Sequence[Column], width: int, cell: int) -> Column | None:
    """Return the column at a cell of a table of ``width`` cells; None if no column is there."""
    left = 0
    for place, size in fit(columns, width).items():
        if left <= cell < left + size:
            return columns[place]
        left += size + GAP
    return None


def header(columns: Sequence[Column], width: int, style: Style) -> Text:
    """Return the line with the columns' titles."""
    return line(columns, [(column.title, style) for column in columns], width)


def line(columns: Sequence[Column], cells: Sequence[tuple[str, Style]], width: int) -> Text:
    """Return one row of the table. ``cells`` has text and style of each column."""
    text = Text()
    for place, (i, size) in enumerate(fit(columns, width).items()):
        if place:
            text.append(" " * GAP)
        cell, style = cells[i]
        cell = fitted(cell, size)
        text.append(cell.rjust(size) if columns[i].right else cell.ljust(size), style)
    return text


def cell(text: Text) -> tuple[str, Style]:
    """Return the text and the style of a styled word, as :func:`line` takes them."""
    return text.plain, next((span.style for span in text.spans if isinstance(span.style, Style)), Style())


def whole(parts: Sequence[tuple[Text, int]], width: int) -> Text:
    """Return texts one behind the other in ``width`` cells. If they do not fit, the texts with the lowest numbers in
    ``parts`` are left out. No text is cut.
    """
    kept = list(parts)
    while len(kept) > 1 and sum(text.cell_len for text, _ in kept) > width:
        kept.remove(min(reversed(kept), key=lambda one: one[1]))
    return Text.assemble(*(text for text, _ in kept))
