"""Draw Python source, and the difference between two sources, as colored lines."""

from __future__ import annotations

import difflib
import re
from itertools import zip_longest

from rich.style import Style
from rich.text import Text

from acceld.tui.palette import Palette, styled

_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_CHANGED = Style(bold=True, underline=True)


def colored(source: str, palette: Palette) -> list[Text]:
    """Return the source as one colored Text for each line."""
    from pygments.lexers.python import PythonLexer  # type: ignore[import-untyped]  # not needed for the first picture
    from pygments.token import Comment, Keyword, Name, Number, Operator, String  # type: ignore[import-untyped]

    styles = (
        (Comment, palette.muted),
        (Keyword, palette.primary),
        (Operator.Word, palette.primary),
        (String, palette.good),
        (Number, palette.warn),
        (Name.Decorator, palette.accent),
        (Name.Function, palette.strong),
    )
    text = Text()
    for kind, value in PythonLexer(stripnl=False, ensurenl=False).get_tokens(source.expandtabs(4)):
        text.append(value, next((style for known, style in styles if kind in known), ""))
    return list(text.split("\n", allow_blank=True))


SIDE_BY_SIDE = 160
"""Width of a terminal in cells from which a difference is drawn in two columns."""
_CONTEXT = 3


def diff_lines(
    before: str,
    after: str,
    palette: Palette,
    old: str = "before",
    new: str = "after",
    *,
    width: int = 0,
    sides: bool = False,
) -> list[Text]:
    """Return the difference between two sources as colored lines, with changed words underlined; empty if they are
    equal.

    Indentation that all shown lines share is left out. Lines longer than ``width`` are continued on the next line; with
    ``width`` 0 they are not continued. With ``sides`` the two sources stand side by side in ``width`` cells.
    """
    if before == after:
        return []
    half = (width - 3) // 2 if sides else width
    left, right = colored(before, palette), colored(after, palette)
    if sides:
        lines = [*_rows(styled(old, palette.muted), styled(new, palette.muted), half)]
    else:
        lines = [styled(f"--- {old}", palette.removed), styled(f"+++ {new}", palette.added)]
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    groups = list(matcher.get_grouped_opcodes(_CONTEXT))
    shown = [
        one for group in groups for _, a, b, c, d in group for one in (*left[a:b], *right[c:d]) if one.plain.strip()
    ]
    indent = min((len(one.plain) - len(one.plain.lstrip()) for one in shown), default=0)
    for group in groups:
        (_, top, _, new_top, _), (_, _, bottom, _, new_bottom) = group[0], group[-1]
        where = f"@@ -{top + 1},{bottom - top} +{new_top + 1},{new_bottom - new_top} @@"
        lines.append(styled(where, palette.primary))
        for kind, a, b, c, d in group:
            gone, come = [one[indent:] for one in left[a:b]], [one[indent:] for one in right[c:d]]
            same = kind == "equal"
            for x, y in () if same else zip(gone, come, strict=False):
                _underline_words(x, y, palette)
            gone = [_marked(" " if same else "-", one, palette.text if same else palette.removed) for one in gone]
            come = [_marked(" " if same else "+", one, palette.text if same else palette.added) for one in come]
            if sides:
                for one, other in zip_longest(gone, come):
                    lines += _rows(one, other, half)
            else:
                for one in gone if same else (*gone, *come):
                    lines += _pieces(one, half)
    return lines


def _marked(mark: str, line: Text, style: Style) -> Text:
    return styled(mark, style).append_text(line)


def _pieces(line: Text, width: int) -> list[Text]:
    """Return a line in pieces of at most ``width`` cells, broken after a blank if there is a blank near the end of a
    piece.

    Each further piece begins with a blank, in the column of the mark (``+`` or ``-``).
    """
    if width < 2 or len(line) <= width:
        return [line]
    ends, at, room = [], 0, width
    while len(line) - at > room:
        blank = line.plain.rfind(" ", at + room // 2, at + room)
        at = blank + 1 if blank >= 0 else at + room
        ends.append(at)
        room = width - 1
    first, *rest = line.divide(ends)
    return [first, *(Text(" ").append_text(one) for one in rest)]


def _rows(left: Text | None, right: Text | None, half: int) -> list[Text]:
    """Return a line of each source side by side, each in ``half`` cells; in several rows if a line is longer."""
    rows = []
    for one, other in zip_longest(_pieces(left or Text(), half), _pieces(right or Text(), half)):
        row = one.copy() if one is not None else Text()
        row.truncate(half, overflow="ellipsis", pad=True)
        rows.append(row.append(" │ ").append_text(other if other is not None else Text()))
    return rows


def _underline_words(old: Text, new: Text, palette: Palette) -> None:
    """Underline, in both versions of a line, the words that differ."""
    words = [[(m.start(), m.end()) for m in _WORDS.finditer(one.plain)] for one in (old, new)]
    texts = [[one.plain[a:b] for a, b in places] for one, places in zip((old, new), words, strict=True)]
    for kind, a, b, c, d in difflib.SequenceMatcher(None, texts[0], texts[1], autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        if b > a:
            old.stylize(palette.removed + _CHANGED, words[0][a][0], words[0][b - 1][1])
        if d > c:
            new.stylize(palette.added + _CHANGED, words[1][c][0], words[1][d - 1][1])
