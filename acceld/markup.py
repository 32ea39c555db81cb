"""Put text from outside into Markdown so that it stays text: titles, messages and kernels can not become markup."""

from __future__ import annotations

import re

_RUNS = re.compile("`+")
_INERT = re.compile(r"[A-Za-z][A-Za-z0-9 ,()%-]*")
"""Pattern of text that every dialect of Markdown reads as plain words, without markup, link, mention or reference."""


def fenced(text: str, language: str = "") -> str:
    """Return a code block with a fence that no line of the text closes."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def literal(text: str) -> str:
    """Return text of one line, also for a cell of a table: plain words are unchanged, anything else becomes code."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if _INERT.fullmatch(line) or not line:
        return line
    mark = "`" * (_longest_run(line) + 1)
    room = " " if "`" in (line[0], line[-1]) else ""
    return f"{mark}{room}{line.replace('|', chr(92) + '|')}{room}{mark}"


def _longest_run(text: str) -> int:
    return max(map(len, _RUNS.findall(text)), default=0)
