"""Edits of a source text by spans, so that everything an edit does not touch stays as it was written."""

from __future__ import annotations

import io


class Edits:
    """Replacements of non-overlapping spans, applied together."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._edits: list[tuple[int, int, str]] = []

    def replace(self, start: int, end: int, text: str) -> None:
        """Put ``text`` where ``source[start:end]`` is; replacing the same span again must say the same."""
        if (start, end, text) not in self._edits:
            self._edits.append((start, end, text))

    def insert(self, at: int, text: str) -> None:
        """Put ``text`` before the character at ``at``."""
        self._edits.append((at, at, text))

    def delete_lines(self, start: int, end: int) -> None:
        """Remove the whole lines that ``source[start:end]`` touches."""
        first = self.source.rfind("\n", 0, start) + 1
        last = self.source.find("\n", end)
        self.replace(first, len(self.source) if last < 0 else last + 1, "")

    def apply_around(self, start: int, end: int) -> tuple[str, str, str]:
        """The edited text before ``start``, from there to ``end``, and behind ``end``."""
        marked, border = Edits(self.source), "\0"
        marked._edits = [*self._edits, (start, start, border), (end, end, border)]
        before, inside, behind = marked.apply().split(border)
        return before, inside, behind

    def apply(self) -> str:
        """The edited text. Raises ValueError where two edits overlap."""
        pieces: list[str] = []
        position = 0
        for start, end, text in sorted(self._edits, key=lambda edit: (edit[0], edit[1])):
            if start < position:
                raise ValueError("two edits of one text overlap")
            pieces += [self.source[position:start], text]
            position = end
        return "".join([*pieces, self.source[position:]])


def lines_of(source: str) -> list[str]:
    """The lines with their ends, as Python counts lines: a form feed in a comment ends none."""
    return io.StringIO(source, newline="").readlines()


def reindent(text: str, before: str, after: str) -> str:
    """``text`` with the indentation ``before`` of its lines replaced by ``after``."""
    lines = text.split("\n")
    return "\n".join(
        after + line[len(before) :] if line.startswith(before) and line.strip() else line for line in lines
    )
