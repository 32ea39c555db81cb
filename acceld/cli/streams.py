"""Let standard output and standard error print any text, whatever their encoding can write."""

from __future__ import annotations

import codecs
import io
import sys
from typing import TextIO

NEAREST = "nearest"
"""Name of the error handler that prints a similar character where the encoding lacks one."""
SIMILAR = str.maketrans(
    "≈≠±×·–—…→←↑↓›²µ✓✗∅⊘◷○●★◆■▶▸▾─━│‖├└" + "▁▂▃▄▅▆▇█▉▊▋▌▍▎▏",
    "~!~x---.><^v>2u+x0#@oo*oo>>v--||||" + "_" * 4 + "#" * 11,
)
"""For each character that acceld prints, one ASCII character, so that columns stay in line."""


def _nearest(error: UnicodeError) -> tuple[str, int]:
    """Return the text that replaces the characters that the encoding lacks, and the position after them."""
    assert isinstance(error, UnicodeEncodeError)
    similar = error.object[error.start : error.end].translate(SIMILAR)
    return "".join(one if one.isascii() else "?" for one in similar), error.end


def print_anything() -> None:
    """Print similar characters, or ``?``, on both streams where their encoding lacks a character."""
    codecs.register_error(NEAREST, _nearest)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=NEAREST)


def writes_unicode(stream: TextIO) -> bool:
    """Return True if the stream's encoding can write every character."""
    return codecs.lookup(stream.encoding or "utf-8").name.startswith("utf")
