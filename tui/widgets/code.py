"""Python source, and the difference of two sources, as colored lines."""

from __future__ import annotations

import difflib

from pygments.lexers.python import PythonLexer  # type: ignore[import-untyped]
from pygments.token import Comment, Keyword, Name, Number, Operator, String  # type: ignore[import-untyped]
from rich.text import Text

from acceld.tui.palette import Palette, styled


def colored(source: str, palette: Palette) -> list[Text]:
    """One Text a line."""
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


def diff_lines(before: str, after: str, palette: Palette, old: str = "before", new: str = "after") -> list[Text]:
    """The unified diff, one Text a line; empty where the two are the same."""
    styles = {"+": palette.added, "-": palette.removed, "@": palette.primary}
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), old, new, lineterm="")
    return [styled(line, styles.get(line[:1], palette.text)) for line in lines]
