"""Quote texts from outside in Markdown, so that titles, messages and kernels are shown as they are and never
become markup.
"""

from __future__ import annotations

import re

_RUNS = re.compile("`+")
_INERT = re.compile(r"[A-Za-z][A-Za-z0-9 ,()%-]*")
"""Pattern of text that every dialect of Markdown reads as plain words, without markup, link, mention or reference."""


def fenced(text: str, language: str = "") -> str:
    """Return a code block with the text. Its fence is longer than any fence in the text, so no line ends the
    block.
    """
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def literal(text: str) -> str:
    """Return a text as one line of Markdown that may stand in a table's cell. Plain words stay as they are; any
    other text becomes code.
    """
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if _INERT.fullmatch(line) or not line:
        return line
    mark = "`" * (_longest_run(line) + 1)
    room = " " if "`" in (line[0], line[-1]) else ""
    return f"{mark}{room}{line.replace('|', chr(92) + '|')}{room}{mark}"


def _longest_run(text: str) -> int:
    return max(map(len, _RUNS.findall(text)), default=0)
