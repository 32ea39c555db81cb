"""Bring a kernel's source into the form in which rules find most places, and back after a rewrite."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from acceld.editing import lines_of
from acceld.nki.source.lives import with_own_tiles
from acceld.nki.source.names import spelled_out

_NAME = re.compile(r"(?<![.\w])[A-Za-z_]\w*")


def normalized(source: str) -> str:
    """Return ``source`` with names replaced by their values, and with a tile of its own for each result. Every line
    keeps its number.
    """
    return spelled_out(with_own_tiles(source))


def as_before(original: str, changed: str) -> str:
    """Return ``changed``, a rewrite of ``normalized(original)``, with the lines of ``original`` where the rewrite left
    them alone.

    A name or a shared tile comes back if the normal form of the result is the normal form of ``changed``, so that both
    compute the same. A person then sees only what the rewrite changed.
    """
    normal = normalized(original)
    before, after, lines = lines_of(original), lines_of(normal), lines_of(changed)
    if normal == original or len(before) != len(after):
        return changed
    touched = [at for at in range(len(before)) if before[at] != after[at]]
    new = set(_NAME.findall(normal)) - set(_NAME.findall(original))
    spelled = {
        _NAME.findall(before[at])[0] for at in touched if after[at].lstrip().startswith("# ") and before[at].strip()
    }
    names = {
        at: spelled.intersection(_NAME.findall(before[at])) | new.intersection(_NAME.findall(after[at]))
        for at in touched
    }
    kept_lines = {
        block.b + step: block.a + step
        for block in SequenceMatcher(None, after, lines, autojunk=False).get_matching_blocks()
        for step in range(block.size)
        if block.a + step in names
    }
    wanted = normalized(changed)

    def with_names(back: set[str]) -> str | None:
        olds = {at: old for at, old in kept_lines.items() if names[old] <= back}
        text = "".join(before[olds[at]] if at in olds else line for at, line in enumerate(lines))
        return text if normalized(text) == wanted else None

    everything = set().union(*names.values())
    if (whole := with_names(everything)) is not None:
        return whole
    kept: set[str] = set()
    for name in sorted(everything):
        if with_names(kept | {name}) is not None:
            kept.add(name)
    return with_names(kept) or changed
