"""Extract a kernel, a plan or an insight from a model's answer.

Deviations in the form of the answer are accepted, but missing content is never made up.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from acceld.parsing import parse

_THOUGHT = re.compile(r"<(think|thinking|thought|reasoning|analysis)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_THOUGHT_END = re.compile(r"^.*</(?:think|thinking|thought|reasoning|analysis)>", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})[ \t]*([^\n`]*)$")
_FIELD = re.compile(r"^[\s*#>_-]*(title|class|insights|strategy|slow|fast)[\s*_]*:[\s*_]*(.*)$", re.IGNORECASE)
SEARCH, DIVIDER, REPLACE = "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE"
"""Lines that mark the two halves of an edit: what to search for, and what to put in its place."""
_EDIT = re.compile(
    rf"^{SEARCH}[ \t]*\n(?P<old>.*?)^{DIVIDER}[ \t]*\n(?P<new>.*?)^{REPLACE}[ \t]*$", re.DOTALL | re.MULTILINE
)
_INSIGHT_ID = re.compile(r"\bi(\d+)\b")


@dataclass(frozen=True, slots=True)
class Extracted:
    """The kernel in a model's answer. If the answer has no kernel, ``text`` is None and ``reason`` says why."""

    text: str | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PlanText:
    """A plan as found in an answer."""

    text: str
    title: str
    change_class: str
    cited: tuple[int, ...]
    """Ids of the insights that the plan names."""


@dataclass(frozen=True, slots=True)
class InsightText:
    """An insight as found in an answer."""

    title: str
    strategy: str
    slow: str
    fast: str


def without_thoughts(answer: str) -> str:
    """Return the answer without the reasoning that the model wrote in it between tags such as ``<think>``."""
    answer = _THOUGHT.sub("", answer)
    return _THOUGHT_END.sub("", answer)


def extract_kernel(answer: str, entry: str = "", *, cut_off: bool = False, base: str = "") -> Extracted:
    """Return the kernel in an answer: the last complete code block with a kernel, or ``base`` after the answer's
    edits or its unified diff.

    ``entry`` is the function that the kernel must define; "" allows any function. A complete block that seems to
    define ``entry`` but does not parse is returned too, because its evaluation then names the line. ``cut_off`` is
    True if the answer ended at its token limit.
    """
    answer = without_thoughts(answer)
    if not answer.strip():
        return Extracted(None, "the answer is empty")
    edits = [(edit.group("old"), edit.group("new")) for edit in _EDIT.finditer(answer)] if base else []
    if edits and not cut_off:
        return _edited(base, edits)
    blocks = list(_blocks(answer))
    if not cut_off and len(blocks) == 1 and not blocks[0][1] and _defines(blocks[0][0], entry) is True:
        return Extracted(blocks[0][0])  # some servers end an answer at its closing fence, and leave the fence out
    complete = [text for text, closed in blocks if closed]
    if base and not cut_off and complete and (hunks := _hunks(complete[-1])):
        return _edited(base, hunks)
    if not blocks and not cut_off and _defines(answer, entry) is True:
        return Extracted(answer.strip() + "\n")
    for wanted in (True, None):
        for text in reversed(complete):
            if _defines(text, entry) is wanted:
                return Extracted(text)
    if cut_off or any(not closed for _, closed in blocks):
        return Extracted(None, "the answer was cut off before the kernel was complete")
    if not blocks:
        return Extracted(None, "the answer holds no code block")
    return Extracted(None, f"no code block defines {entry!r}" if entry else "no code block defines a function")


def _hunks(block: str) -> list[tuple[str, str]]:
    """Return the edits in a unified diff, as pairs (lines to search for, lines in their place); none for other texts."""
    hunks: list[tuple[list[str], list[str]]] = []
    for line in block.splitlines():
        if line.startswith("@@"):
            hunks.append(([], []))
        elif hunks and not line.startswith("\\"):  # "\ No newline at end of file"
            old, new = hunks[-1]
            if not line.startswith("+"):
                old.append(line[1:])
            if not line.startswith("-"):
                new.append(line[1:])
    return [("\n".join(old), "\n".join(new)) for old, new in hunks]


def _edited(base: str, edits: Sequence[tuple[str, str]]) -> Extracted:
    """Return the kernel ``base`` after the edits, in order; without text and with the reason if an edit does not fit.

    An edit is a pair (lines to search for, lines in their place).

    The lines that an edit searches for must occur exactly once in the kernel. Blanks at the ends of lines do not count.
    """
    lines = [line.rstrip() for line in base.splitlines()]
    for number, (old, put) in enumerate(edits, 1):
        wanted = [line.rstrip() for line in old.strip("\n").splitlines()]
        new = put.strip("\n").splitlines()
        if not any(wanted):
            return Extracted(None, f"edit {number} searches for nothing")
        places = [at for at in range(len(lines) - len(wanted) + 1) if lines[at : at + len(wanted)] == wanted]
        if len(places) != 1:
            found = f"found {len(places)} times" if places else "not found"
            return Extracted(None, f"the lines that edit {number} searches for are {found}, not once: {wanted[0]!r}")
        lines[places[0] : places[0] + len(wanted)] = new
    return Extracted("\n".join(lines) + "\n")


def parse_plan(answer: str, classes: Collection[str]) -> PlanText | None:
    """Return the plan in an answer; None if the answer has only a header. A change class that is not in ``classes``
    becomes ``mixed``.
    """
    title, change_class = "", "mixed"
    cited: tuple[int, ...] = ()
    body: list[str] = []
    for line in without_thoughts(answer).strip().splitlines():
        found = _FIELD.match(line)
        field = found.group(1).lower() if found else ""
        value = found.group(2).strip().rstrip("*_") if found else ""
        if field == "title" and not title:
            title = value
        elif field == "class" and not body:
            words = re.findall(r"[a-z_]+", value.lower())
            change_class = next((word for word in words if word in classes), "mixed")
        elif field == "insights" and not body:
            cited = tuple(int(number) for number in _INSIGHT_ID.findall(value))
        elif line.strip() or body:
            body.append(line)
    text = "\n".join(body).strip()
    if not text:
        return None
    return PlanText(text, title or _first_words(text), change_class, cited)


def parse_insight(answer: str) -> InsightText | None:
    """Return the insight in an answer; None for the answer ``NONE``, or without a title or a strategy."""
    answer = without_thoughts(answer).strip()
    if re.fullmatch(r"\W*none\W*", answer, re.IGNORECASE):
        return None
    fields: dict[str, list[str]] = {}
    current = ""
    for line in answer.splitlines():
        found = _FIELD.match(line)
        if found and found.group(1).lower() in ("title", "strategy", "slow", "fast"):
            current = found.group(1).lower()
            fields[current] = [found.group(2).strip().rstrip("*_")]
        elif current and not _FENCE.match(line):
            fields[current].append(line.rstrip())
    texts = {name: "\n".join(lines).strip() for name, lines in fields.items()}
    if not texts.get("title") or not texts.get("strategy"):
        return None
    return InsightText(texts["title"], texts["strategy"], texts.get("slow", ""), texts.get("fast", ""))


def _blocks(answer: str) -> Iterator[tuple[str, bool]]:
    """Yield each fenced block in order: its text, and whether a closing fence ends it."""
    lines: list[str] = []
    mark = ""
    for line in answer.splitlines():
        found = _FENCE.match(line)
        if not mark:
            if found:
                mark, lines = found.group(2), []
        elif found and not found.group(3).strip() and found.group(2)[0] == mark[0] and len(found.group(2)) >= len(mark):
            yield textwrap.dedent("\n".join(lines)).strip("\n") + "\n", True
            mark = ""
        else:
            lines.append(line)
    if mark:
        yield textwrap.dedent("\n".join(lines)).strip("\n") + "\n", False


def _defines(text: str, entry: str) -> bool | None:
    """Return True if a text defines the function ``entry``, and False if it does not.

    None means that the text seems to define the function but is not valid Python. A kernel in C never is valid Python.
    """
    try:
        tree = parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        name = re.escape(entry) if entry else r"\w+"
        python = rf"^\s*(?:async\s+)?def\s+{name}\s*\("
        c = rf"^\w[^\n=;(]*\b{name}\s*\([^;{{}}]*\)\s*\{{"
        return None if re.search(f"{python}|{c}", text, re.MULTILINE) else False
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return entry in names if entry else bool(names)


def _first_words(text: str) -> str:
    words = text.split()
    return " ".join(words[:10]) + (" …" if len(words) > 10 else "")
