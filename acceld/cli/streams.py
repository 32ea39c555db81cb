"""Let standard output and standard error take any text, whatever characters their encoding has."""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from typing import Any, TextIO

from acceld.private_files import NO_ROOM

NEAREST = "nearest"
"""Name of the error handler that prints a similar character where the encoding lacks one."""
SIMILAR = str.maketrans(
    "≈≠±×·–—…→←↑↓›²µ✓✗∅⊘◷○●★◆■▶▸▾─━│‖├└" + "▁▂▃▄▅▆▇█▉▊▋▌▍▎▏",
    "~!~x---.><^v>2u+x0#@oo*oo>>v--||||" + "_" * 4 + "#" * 11,
)
"""One ASCII character for each other character that acceld prints, so that columns stay in line."""


def _nearest(error: UnicodeError) -> tuple[str, int]:
    """Return the text to write in place of characters that an encoding lacks, and the position to continue at."""
    assert isinstance(error, UnicodeEncodeError)
    similar = error.object[error.start : error.end].translate(SIMILAR)
    return "".join(one if one.isascii() else "?" for one in similar), error.end


NOT_WRITTEN = (*NO_ROOM, errno.EIO)
"""Error numbers with which a write of output fails because a disk is full, a limit is reached or a device is gone."""


def print_anything() -> None:
    """Make both streams write a similar character, or ``?``, for each character that their encoding lacks.

    A stream that the caller of the command has closed takes all output and drops it.
    """
    codecs.register_error(NEAREST, _nearest)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # Else the next file to be opened would get the number of a stream, and a child would write into that file.
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            os.set_inheritable(number, True)
            dropping = open(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False)  # noqa: SIM115  open until the process ends
            setattr(sys, name, dropping)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=NEAREST)


class _Outliving(io.FileIO):
    """File that drops what is written to a pipe without a reader."""

    def write(self, content: Any) -> int | None:  # type: ignore[override]  # the base class names its argument otherwise
        try:
            return super().write(content)
        except BrokenPipeError:
            return memoryview(content).nbytes


def outlive_reader(name: str) -> None:
    """Let a standard stream (``stdout`` or ``stderr``) drop its text once nobody reads the pipe behind it, so that the
    command ends with the exit code of its result.
    """
    stream = getattr(sys, name)
    if not isinstance(stream, io.TextIOWrapper) or not isinstance(_raw(stream), io.FileIO):
        return
    stream.flush()
    outliving = _Outliving(stream.fileno(), "w", closefd=False)
    made = io.TextIOWrapper(
        outliving if stream.buffer is _raw(stream) else io.BufferedWriter(outliving),
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
    setattr(sys, name, made)


def _raw(stream: io.TextIOWrapper) -> Any:
    """Return the file behind a stream, which is the stream's buffer itself if Python runs unbuffered."""
    return getattr(stream.buffer, "raw", stream.buffer)


def print_no_more() -> None:
    """Drop all further output, because standard output can not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def writes_unicode(stream: TextIO) -> bool:
    """Tell whether the stream's encoding has every character."""
    return codecs.lookup(stream.encoding or "utf-8").name.startswith("utf")
