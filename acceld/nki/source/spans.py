"""Parse a kernel's text, and find the text behind each node of its syntax tree.

``ast`` counts columns in bytes, and leaves out the parentheses around an operand. Spans here are offsets of
characters. The text of a node includes its parentheses, so that the text means the same wherever an operand may
stand.
"""

from __future__ import annotations

import ast
import keyword
import re
from functools import lru_cache

from acceld.editing import SourceText
from acceld.parsing import parse

_CODE = re.compile(r"""(?:[^#'"]|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")*""")
"""Matches a line up to its comment."""
_LAST_WORD = re.compile(r"\w+\Z")
_SPACE = " \t\f\r\n\\"


@lru_cache(maxsize=64)
def parsed(source: str) -> ast.Module:
    """Return the syntax tree of a source. Callers must not change the tree, because it is shared.

    Raise SyntaxError or ValueError as :func:`ast.parse` does.
    """
    return parse(source)


def is_alone(text: SourceText, node: ast.stmt) -> bool:
    """Tell whether no other statement shares the lines of ``node``. A comment may follow it."""
    start, end = text.span(node)
    after = text.source[end : text.after_line(end)].strip()
    return not text.source[text.line_start(start) : start].strip() and (not after or after.startswith("#"))


class ParsedText(SourceText):
    """A kernel's text and its syntax tree."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.module = parsed(source)
        self._texts: dict[ast.AST, str] = {}

    def text(self, node: ast.AST) -> str:
        """Return the source text of ``node``, including the parentheses around it. If the node is not part of the
        source, its text is generated.
        """
        known = self._texts.get(node)
        if known is None:
            known = self._texts[node] = self._text(node)
        return known

    def _text(self, node: ast.AST) -> str:
        if not hasattr(node, "lineno"):
            return ast.unparse(node)
        start, end = self.span(node)
        while isinstance(node, ast.expr):
            before, after = self._before(start), self._after(end)
            enclosed = before >= 0 and self.source[before] == "(" and self.source.startswith(")", after)
            if not enclosed or self._calls(before):
                break
            start, end = before, after + 1
        return self.source[start:end]

    def is_in_parentheses(self, node: ast.expr) -> bool:
        """Tell whether the source has parentheses around ``node``."""
        start, end = self.span(node)
        return len(self.text(node)) > end - start

    def _before(self, at: int) -> int:
        """Return the offset of the last character before ``at`` that is neither white space nor part of a
        comment; -1 if there is none.
        """
        at -= 1
        while at >= 0 and self.source[at] in _SPACE:
            if self.source[at] == "\n":
                code = _CODE.match(self.source, self.line_start(at), at)
                at = code.end() if code is not None else at
            at -= 1
        return at

    def _after(self, at: int) -> int:
        """Return the offset of the first character from ``at`` on that is neither white space nor part of a
        comment.
        """
        while at < len(self.source) and (self.source[at] in _SPACE or self.source[at] == "#"):
            at = self.after_line(at) if self.source[at] == "#" else at + 1
        return at

    def _calls(self, at: int) -> bool:
        """Tell whether the parenthesis at offset ``at`` opens the arguments of a call, because it stands right after
        an operand.
        """
        before = self.source[self.line_start(at) : at].rstrip(_SPACE)
        word = _LAST_WORD.search(before)
        if word is not None:
            return not keyword.iskeyword(word[0]) or word[0] in ("None", "True", "False")
        return before.endswith((")", "]", "}", '"', "'"))
