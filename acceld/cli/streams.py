"""Let standard output and standard error take any text, whatever characters their encoding has."""

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
    """Handle characters that an encoding lacks: return the text to write instead, and the position to continue
    at.
    """
    assert isinstance(error, UnicodeEncodeError)
    similar = error.object[error.start : error.end].translate(SIMILAR)
    return "".join(one if one.isascii() else "?" for one in similar), error.end


def print_anything() -> None:
    """Make both streams write a similar character, or ``?``, for each character that their encoding lacks."""
    codecs.register_error(NEAREST, _nearest)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=NEAREST)


def writes_unicode(stream: TextIO) -> bool:
    """Tell whether the stream's encoding has every character."""
    return codecs.lookup(stream.encoding or "utf-8").name.startswith("utf")
