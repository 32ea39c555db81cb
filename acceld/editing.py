"""Edit a source text by spans (start and end offsets), so that all other text stays as it was written."""

from __future__ import annotations

import ast
import io
import re
from bisect import bisect_right
from collections.abc import Collection
from functools import cached_property

_WORD = re.compile(r"[^\W\d]\w*")
_SEPARATOR = re.compile(r"[ \t]*;[ \t]*")
_LAST_SEPARATOR = re.compile(r"[ \t]*;[ \t]*\Z")


class SourceText:
    """A source text with its lines and words; the base class of parsed sources."""

    def __init__(self, source: str) -> None:
        self.source = source

    @cached_property
    def words(self) -> frozenset[str]:
        """Return all names and keywords in the source. A new name must differ from each of them."""
        return frozenset(_WORD.findall(self.source))

    @cached_property
    def line_starts(self) -> list[int]:
        """Return the offset of the start of each line, and of the end of the text."""
        starts = [0]
        for line in lines_of(self.source):
            starts.append(starts[-1] + len(line))
        return starts

    @cached_property
    def _is_ascii(self) -> bool:
        return self.source.isascii()

    def offset(self, line: int, column: int) -> int:
        """Return the offset in the source of a line (from 1) and a column, which syntax trees count in bytes of UTF-8."""
        start = self.line_starts[line - 1]
        if self._is_ascii:
            return start + column
        return start + len(self.source[start : self.line_starts[line]].encode()[:column].decode())

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return the offsets at which the text of ``node`` begins and ends, without the parentheses around it."""
        first, last = (node.body[0], node.body[-1]) if isinstance(node, ast.Module) else (node, node)
        start = self.offset(first.lineno, first.col_offset)  # type: ignore[attr-defined]  # a statement or expression has lines
        return start, self.offset(last.end_lineno, last.end_col_offset)  # type: ignore[attr-defined]  # a statement or expression has lines

    def fresh(self, wish: str, taken: Collection[str] = ()) -> str:
        """Return the name ``wish`` if the source and ``taken`` do not have it yet, else ``wish`` with a number behind
        it.
        """
        name, number = wish, 1
        while name in self.words or name in taken:
            number += 1
            name = f"{wish}{number}"
        return name

    def line(self, position: int) -> int:
        """Return the number, from 1, of the line at the offset ``position``."""
        return bisect_right(self.line_starts, position)

    def line_start(self, position: int) -> int:
        """Return the offset at which the line of the offset ``position`` starts."""
        return self.source.rfind("\n", 0, position) + 1

    def after_line(self, position: int) -> int:
        """Return the offset at which the next line after the offset ``position`` starts; at the last line, the length
        of the source.
        """
        end = self.source.find("\n", position)
        return len(self.source) if end < 0 else end + 1

    def indentation(self, position: int) -> str:
        """Return the white space at the start of the line at the offset ``position``."""
        text = self.source[self.line_start(position) : position]
        return text[: len(text) - len(text.lstrip())]


class Edits:
    """Edits of one text, collected first and applied together. Their spans must not overlap."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._edits: list[tuple[int, int, str]] = []
        self._deleted: set[tuple[int, int]] = set()

    def replace(self, start: int, end: int, text: str) -> None:
        """Replace ``source[start:end]`` by ``text``. Replacing the same span again must use the same text."""
        if (start, end, text) not in self._edits:
            self._edits.append((start, end, text))

    def insert(self, at: int, text: str) -> None:
        """Insert ``text`` before the character at the offset ``at``."""
        self._edits.append((at, at, text))

    def delete_lines(self, start: int, end: int) -> None:
        """Remove the statement ``source[start:end]`` together with its lines.

        If a line also has another statement, which stays, only the text of the removed statement goes.
        """
        self._deleted.add((start, end))

    def _deletions(self) -> list[tuple[int, int, str]]:
        """Return the edits that remove the deleted statements."""
        lines: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for start, end in sorted(self._deleted):
            last = self.source.find("\n", end)
            whole = self.source.rfind("\n", 0, start) + 1, len(self.source) if last < 0 else last + 1
            lines.setdefault(whole, []).append((start, end))
        found: list[tuple[int, int, str]] = []
        for (first, behind), gone in lines.items():
            left, position = "", first
            for start, end in gone:
                left, position = left + self.source[position:start], end
            left += self.source[position:behind]
            left = left.strip(" \t;\f\r\n")
            shared = any(
                self.source[first:start].rstrip().endswith(";") or self.source[end:behind].lstrip().startswith(";")
                for start, end in gone
            )
            if not shared or not left or left.startswith("#"):
                found.append((first, behind, ""))
                continue
            edge = first
            for start, end in gone:
                if after := _SEPARATOR.match(self.source, end, behind):
                    end = after.end()
                elif before := _LAST_SEPARATOR.search(self.source, edge, start):
                    start = before.start()
                found.append((start, end, ""))
                edge = end
        return found

    def apply_around(self, start: int, end: int) -> tuple[str, str, str]:
        """Return the edited text in three parts: before the span from ``start`` to ``end``, the span, and after
        the span.
        """
        marked, border = Edits(self.source), "\0"
        marked._edits = [*self._edits, (start, start, border), (end, end, border)]
        marked._deleted = self._deleted
        before, inside, behind = marked.apply().split(border)
        return before, inside, behind

    def apply(self) -> str:
        """Return the edited text. Raise ValueError if two edits overlap."""
        pieces: list[str] = []
        position = 0
        edits = [*self._edits, *(one for one in self._deletions() if one not in self._edits)]
        for start, end, text in sorted(edits, key=lambda edit: (edit[0], edit[1])):
            if start < position:
                raise ValueError(f"two edits of one text overlap at offset {start}: make them one edit")
            pieces += [self.source[position:start], text]
            position = end
        return "".join([*pieces, self.source[position:]])


def lines_of(source: str) -> list[str]:
    """Return the lines with their line ends, split as Python does: a form feed does not end a line."""
    return io.StringIO(source, newline="").readlines()


def reindent(text: str, before: str, after: str) -> str:
    """Return ``text`` with the indentation ``after`` on each line that had the indentation ``before``."""
    lines = text.split("\n")
    return "\n".join(
        after + line[len(before) :] if line.startswith(before) and line.strip() else line for line in lines
    )
