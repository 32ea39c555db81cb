"""Show long answers on a terminal in a pager, like git."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping

DEFAULT = "less"
LESS = "FRX"
"""Options of less if the person has set none: quit if all fits, keep colors, leave the text on the screen."""


class _Terminal(io.TextIOWrapper):
    """Text output that a pager reads while the pager writes to the terminal."""

    def isatty(self) -> bool:
        return True


def pager_of(environ: Mapping[str, str]) -> list[str]:
    """Return the words of the pager's command: from ``ACCELD_PAGER``, else from ``PAGER``, else ``less``.

    Return no words, which means no pager, if that variable is empty or ``cat``, or if TERM is ``dumb``.
    """
    text = environ.get("ACCELD_PAGER", environ.get("PAGER", DEFAULT))
    words = shlex.split(text)
    return [] if words == ["cat"] or environ.get("TERM") == "dumb" else words


@contextlib.contextmanager
def paged() -> Iterator[None]:
    """Send what the block prints through the pager, if standard input and standard output are a terminal."""
    words = pager_of(os.environ) if sys.stdout.isatty() and sys.stdin.isatty() else []
    try:
        pager = subprocess.Popen(words, stdin=subprocess.PIPE, env={"LESS": LESS, **os.environ}) if words else None
    except OSError:
        pager = None  # the pager's program is not installed
    if pager is None:
        yield
        return
    assert pager.stdin is not None
    outputs = sys.stdout, sys.stderr
    text = _Terminal(pager.stdin, encoding=sys.stdout.encoding, errors=sys.stdout.errors, write_through=True)
    sys.stdout = text
    if sys.stderr.isatty():
        sys.stderr = text
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C belongs to the pager
    try:
        yield
    except BrokenPipeError:
        pass  # the person has left the pager
    finally:
        sys.stdout, sys.stderr = outputs
        with contextlib.suppress(BrokenPipeError):
            text.close()
        pager.wait()
        signal.signal(signal.SIGINT, before)
