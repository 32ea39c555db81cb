"""Make programs that a test puts on PATH."""

from __future__ import annotations

import sys
from pathlib import Path


def python_program(path: Path, text: str) -> Path:
    """Write a program in Python that this interpreter runs, wherever it lies; return its path.

    The first lines are a shell's, because the path after ``#!`` can hold no space and has a limit on its length. For
    Python they are a string.
    """
    path.write_text(f"#!/bin/sh\n'''exec' \"{sys.executable}\" \"$0\" \"$@\"\n' '''\n{text}", encoding="utf-8")
    path.chmod(0o755)
    return path
