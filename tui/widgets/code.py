"""Python source as colored lines."""

from __future__ import annotations

from pygments.lexers.python import PythonLexer  # type: ignore[import-untyped]
from pygments.token import Comment, Keyword, Name, Number, Operator, String  # type: ignore[import-untyped]
from rich.text import Text

from tui.palette import Palette


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
