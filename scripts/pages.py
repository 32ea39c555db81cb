"""Find what editing by hand often breaks in a page: a second title, an unbalanced fence, a sentence in two versions,
a paragraph on one line.

``python scripts/pages.py`` checks README.md, AGENTS.md and every page of docs/. It exits with 1 if a page has a
fault.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

ROOT = Path(__file__).parents[1]
WIDEST = 140
"""Most characters of a line of prose. Rows of tables may be longer."""
LONG = 60
"""Lines and sentences with more characters than this are compared."""
ALIKE = 0.9
"""Similarity (0 to 1) from which on two lines or two sentences count as one text in two versions."""
BEGINS = re.compile(r"\s*(?:\||#+ |([*-] |\d+\. ))")
"""Matches a line that ends the paragraph before it: a row of a table, a title, an entry of a list. The group is the
mark of a list's entry, which begins a new paragraph.
"""
CODE = re.compile(r"`[^`]*`")
FENCE = re.compile(r"\s*(`{3,}|~{3,})(.*)$")


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at a line of a page."""

    line: int
    text: str


def faults(page: str) -> list[Fault]:
    """Return the faults of a page, in the order of its lines."""
    prose, found = _prose(page)
    titles = [number for number, line in prose if line.startswith("# ")]
    found += [Fault(number, "a second first-level heading") for number in titles[1:]]
    found += [
        Fault(number, f"a line of {len(line)} characters: break lines of prose before {WIDEST}")
        for number, line in prose
        if len(line) > WIDEST and not line.lstrip().startswith("|")
    ]
    found += _alike(prose)
    found += _alike(list(_sentences(prose)))
    return sorted(set(found), key=lambda fault: (fault.line, fault.text))


def _prose(page: str) -> tuple[list[tuple[int, str]], list[Fault]]:
    """Return the lines outside of code blocks with their numbers, and the faults of the fences."""
    prose: list[tuple[int, str]] = []
    found: list[Fault] = []
    opened: tuple[int, str] | None = None
    for number, line in enumerate(page.splitlines(), 1):
        fence = FENCE.match(line)
        if opened is None:
            if fence:
                opened = (number, fence[1])
            else:
                prose.append((number, line))
        elif fence and fence[1].startswith(opened[1]):
            if fence[2].strip():  # a fence with a language opens a block, so the one before was never closed
                found.append(Fault(opened[0], "a fence that is not closed"))
                opened = (number, fence[1])
            else:
                opened = None
    if opened is not None:
        found.append(Fault(opened[0], "a fence that is not closed"))
    return prose, found


def _sentences(prose: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield the sentences of each paragraph with the number of the line on which each begins."""
    paragraph: list[tuple[int, str]] = []
    for number, line in [*prose, (0, "")]:
        begins = BEGINS.match(line)
        if line.strip() and not begins:
            paragraph.append((number, line.strip()))
            continue
        starts, text = [], ""
        for place, part in paragraph:
            starts.append((len(text), place))
            text += part + " "
        for sentence in re.finditer(r"\S.*?(?:[.:](?=\s)|$)", text):
            yield max(place for offset, place in starts if offset <= sentence.start()), sentence[0].strip()
        paragraph = [(number, line.strip())] if begins and begins[1] else []


def _alike(texts: list[tuple[int, str]]) -> list[Fault]:
    """Return a fault for each text that nearly repeats an earlier text. Rows of tables and code are not compared."""
    plain = [(number, CODE.sub("``", text)) for number, text in texts if not text.lstrip().startswith("|")]
    long = [(number, text) for number, text in plain if len(text) > LONG]
    found = []
    matcher = SequenceMatcher(autojunk=False)
    for place, (second, other) in enumerate(long):
        matcher.set_seq2(other)  # the matcher indexes this text once, for all earlier ones
        for first, one in long[:place]:
            matcher.set_seq1(one)
            if matcher.real_quick_ratio() > ALIKE and matcher.quick_ratio() > ALIKE and matcher.ratio() > ALIKE:
                found.append(Fault(second, f"nearly repeats line {first}: {other[:LONG]}"))
    return found


def main() -> int:
    """Print the faults of all pages. Return 1 if there is one."""
    code = 0
    for path in [ROOT / "README.md", ROOT / "AGENTS.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for fault in faults(path.read_text(encoding="utf-8")):
            print(f"{path.relative_to(ROOT)}:{fault.line}: {fault.text}", file=sys.stderr)
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
