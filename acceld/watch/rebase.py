"""Apply an earlier win to an edited file: repeat on the new text the change that made the old text faster."""

from __future__ import annotations

import difflib


def rebased(base: str, best: str, edited: str) -> str | None:
    """Return ``edited`` with the change from ``base`` to ``best``; None if the edit touched lines that the change
    touches.
    """
    base_lines, edited_lines = base.splitlines(keepends=True), edited.splitlines(keepends=True)
    matcher = difflib.SequenceMatcher(None, base_lines, edited_lines, autojunk=False)
    place: dict[int, int] = {}
    for old, new, length in matcher.get_matching_blocks():
        place.update({old + i: new + i for i in range(length)})
    place[len(base_lines)] = len(edited_lines)
    changes = difflib.SequenceMatcher(None, base_lines, best.splitlines(keepends=True), autojunk=False).get_opcodes()
    best_lines, made = best.splitlines(keepends=True), list(edited_lines)
    for tag, start, end, new_start, new_end in reversed(changes):
        if tag == "equal":
            continue
        # Every removed line must still be in the file, next to the others; for a pure insertion, the line after it.
        touched = [place.get(line) for line in range(start, end + (end == start))]
        if None in touched or [line - touched[0] for line in touched] != list(range(len(touched))):  # type: ignore[operator]  # None is excluded before
            return None
        first = touched[0]
        assert first is not None
        made[first : first + end - start] = best_lines[new_start:new_end]
    return "".join(made)
