"""Bring a kernel's source into the form in which rules find most places, and bring it back after a rewrite."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection
from difflib import SequenceMatcher
from itertools import pairwise

from acceld.editing import Edits, SourceText, lines_of
from acceld.nki.source.counting import counted_values, with_counted_loops
from acceld.nki.source.lists import with_stacked_tiles
from acceld.nki.source.lives import declared_tile, with_own_tiles
from acceld.nki.source.names import spelled_out, with_shapes_written_out
from acceld.nki.source.returns import with_returns_written_out
from acceld.nki.source.scopes import with_own_names
from acceld.nki.source.spans import parsed
from acceld.nki.source.syntax import blocks

_NAME = re.compile(r"(?<![.\w])[A-Za-z_]\w*")
_NUMBER = re.compile(r"_\d+$")
"""Matches the end that normalization adds to a name, as in ``tile_2``."""


def normalized(source: str) -> str:
    """Return ``source`` in normal form: names are replaced by their values, lists of tiles by one tile each, and each
    result has its own tile, and each tile its own name. Every line keeps its number.
    """
    return _steps(source)[-1]


_SHAPE = re.compile(r"([A-Za-z_]\w*)\.shape\b")

_STEPS = (
    *(with_counted_loops, with_returns_written_out, with_stacked_tiles),
    *(with_own_names, with_shapes_written_out, with_own_tiles, spelled_out),
)
_STACKED = 3
"""Number of steps after which expressions and lists are written out, and all names are still those of the kernel."""


def _steps(source: str) -> tuple[str, str, str]:
    """Return (``source``, ``source`` with returned expressions and lists of tiles written out, ``source`` after all
    steps of normalization).

    A step whose result is not valid Python is left out, and all steps if ``source`` is not.
    """
    forms = [source]
    for step in _STEPS:
        try:
            made = step(forms[-1])
            parsed(made)
        except (SyntaxError, ValueError):
            made = forms[-1]
        forms.append(made)
    return source, forms[_STACKED], forms[-1]


def as_before(original: str, changed: str) -> str:
    """Return ``changed``, a rewrite of ``normalized(original)``, with the lines of ``original`` where the rewrite left
    them alone.

    Normalization has replaced names by their values, lists by tiles, and a shared tile by several tiles. Such a name,
    list or shared tile is restored if the restored kernel has the same normal form as ``changed``, so that both compute
    the same. A person then sees only what the rewrite changed.
    """
    return _on_own_lines(_as_before(original, changed))


def _as_before(original: str, changed: str) -> str:
    wanted = normalized(changed)
    first, stacked, normal = _steps(original)
    forms = [_Lines(former, normal, changed, wanted) for former in dict.fromkeys((first, stacked))]
    for lines in forms:
        if (whole := lines.with_names(lines.names)) is not None:
            return whole
    for lines in forms:
        kept: set[str] = set()
        for name in sorted(lines.names):
            if lines.with_names(kept | {name}) is not None:
                kept.add(name)
        if kept and (most := lines.with_names(kept)) not in (None, changed):
            return most or changed
    return changed


def _on_own_lines(source: str) -> str:
    """Return ``source`` with each declaration of a tile on a line of its own. Normalization declares tiles on the line of
    another declaration.
    """
    try:
        tree = parsed(source)
    except (SyntaxError, ValueError):
        return source
    text, edits = SourceText(source), Edits(source)
    for function in (one for one in tree.body if isinstance(one, ast.FunctionDef)):
        for body in blocks(function.body):
            for before, after in pairwise(body):
                if before.end_lineno == after.lineno and _NUMBER.search(declared_tile(after)):
                    start = text.span(body[0])[0]
                    indent = source[text.line_start(start) : start]
                    edits.replace(text.span(before)[1], text.span(after)[0], f"\n{indent}")
    return edits.apply()


def with_former_names(original: str, normal: str, words: str) -> str:
    """Return ``words``, a sentence about ``normal`` (the normal form of ``original``), with the names that ``original`` has."""
    new = set(_NAME.findall(normal)) - set(_NAME.findall(original))
    return _NAME.sub(lambda found: _NUMBER.sub("", found[0]) if found[0] in new else found[0], words) if new else words


class _Lines:
    """The lines of a rewritten kernel. A line that the rewrite kept also has its text before normalization."""

    def __init__(self, original: str, normal: str, changed: str, wanted: str) -> None:
        before, after = lines_of(original), lines_of(normal)
        self._before, self._lines, self._wanted = before, lines_of(changed), wanted
        touched = [at for at, (old, new) in enumerate(zip(before, after, strict=False)) if old != new]
        new = set(_NAME.findall(normal)) - set(_NAME.findall(original))
        self._new = new
        gone = {at for at in touched if after[at].lstrip().startswith("# ") and _NAME.search(before[at])}
        spelled = {_NAME.findall(before[at])[0] for at in gone}
        self._used = {name for name, count in Counter(_NAME.findall(original)).items() if count > 1} & spelled
        """Names of views and indices that the original kernel uses."""
        self._names = {
            at: spelled.intersection(_NAME.findall(before[at]))
            | new.intersection(_NAME.findall(after[at]))
            | set(_SHAPE.findall(before[at])).difference(_SHAPE.findall(after[at]))
            for at in touched
        }
        self._places = {
            block.b + step: block.a + step
            for block in SequenceMatcher(None, after, self._lines, autojunk=False).get_matching_blocks()
            for step in range(block.size)
            if block.a + step in self._names
        }
        self._counted = counted_values(original)
        self.names = frozenset[str]().union(*self._names.values())
        """Names that normalization replaced or made."""

    def with_names(self, back: Collection[str]) -> str | None:
        """Return the rewritten kernel with some original lines: those that the rewrite kept and in which normalization
        replaced or made only names in ``back``.

        Return None if that kernel has another normal form than the rewritten kernel, or if the kernel would assign a name
        that the original uses and the rewritten kernel does not.
        """
        olds = {at: old for at, old in self._places.items() if self._names[old] <= set(back)}
        counted = {name: self._counted[name] for name in self._counted.keys() & back}
        shared = {name: name.rpartition("_")[0] for name in self._new.intersection(back) - counted.keys()}

        def line_of(at: int, line: str) -> str:
            if at in olds:
                return self._before[olds[at]]
            for name, value in counted.values():
                line = line.replace(f"({value})", name).replace(value, name)
            if not shared:
                return line
            line = _NAME.sub(lambda found: shared.get(found[0], found[0]), line)
            return "; ".join(dict.fromkeys(line.rstrip("\n").split("; "))) + "\n" * line.endswith("\n")

        text = "".join(line_of(at, line) for at, line in enumerate(self._lines))
        if back := self._used.intersection(back):
            count = Counter(_NAME.findall(text))
            if any(count[name] == 1 for name in back):
                return None  # the rewrite used the value, so the name would do nothing
        return text if normalized(text) == self._wanted else None
