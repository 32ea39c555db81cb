"""Draw Python source, and the difference of two sources, as colored lines."""

from __future__ import annotations

import difflib
import re
from itertools import zip_longest

from pygments.lexers.python import PythonLexer  # type: ignore[import-untyped]
from pygments.token import Comment, Keyword, Name, Number, Operator, String  # type: ignore[import-untyped]
from rich.style import Style
from rich.text import Text

from acceld.tui.palette import Palette, styled

_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_CHANGED = Style(bold=True, underline=True)


def colored(source: str, palette: Palette) -> list[Text]:
    """Return one Text a line."""
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
    before: str, after: str, palette: Palette, old: str = "before", new: str = "after", width: int = 0
) -> list[Text]:
    """Return the difference, one Text a line, with changed words underlined. With ``width`` it is in two columns of
    that total width.

    It is empty if the two are the same.
    """
    if before == after:
        return []
    sides = width > 0
    half = (width - 3) // 2
    left, right = colored(before, palette), colored(after, palette)
    lines = [_row(styled(old, palette.muted), styled(new, palette.muted), half)] if sides else []
    if not sides:
        lines += [styled(f"--- {old}", palette.removed), styled(f"+++ {new}", palette.added)]
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        (_, top, _, new_top, _), (_, _, bottom, _, new_bottom) = group[0], group[-1]
        where = f"@@ -{top + 1},{bottom - top} +{new_top + 1},{new_bottom - new_top} @@"
        lines.append(styled(where, palette.primary))
        for kind, a, b, c, d in group:
            gone, come = [one.copy() for one in left[a:b]], [one.copy() for one in right[c:d]]
            if kind == "equal":
                lines += [
                    _row(_marked(" ", x, palette.text), _marked(" ", y, palette.text), half)
                    if sides
                    else _marked(" ", x, palette.text)
                    for x, y in zip(gone, come, strict=True)
                ]
                continue
            for x, y in zip(gone, come, strict=False):
                _underline_words(x, y, palette)
            gone = [_marked("-", one, palette.removed) for one in gone]
            come = [_marked("+", one, palette.added) for one in come]
            lines += [_row(x, y, half) for x, y in zip_longest(gone, come)] if sides else gone + come
    return lines


def _marked(mark: str, line: Text, style: Style) -> Text:
    return styled(mark, style).append_text(line)


def _row(left: Text | None, right: Text | None, half: int) -> Text:
    """Return two columns of ``half`` cells."""
    row = left.copy() if left is not None else Text()
    row.truncate(half, overflow="ellipsis", pad=True)
    return row.append(" │ ").append_text(right if right is not None else Text())


def _underline_words(old: Text, new: Text, palette: Palette) -> None:
    """Underline the words in which two versions of a line differ."""
    words = [[(m.start(), m.end()) for m in _WORDS.finditer(one.plain)] for one in (old, new)]
    texts = [[one.plain[a:b] for a, b in places] for one, places in zip((old, new), words, strict=True)]
    for kind, a, b, c, d in difflib.SequenceMatcher(None, texts[0], texts[1], autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        if b > a:
            old.stylize(palette.removed + _CHANGED, words[0][a][0], words[0][b - 1][1])
        if d > c:
            new.stylize(palette.added + _CHANGED, words[1][c][0], words[1][d - 1][1])
