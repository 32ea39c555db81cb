"""Writing a better kernel over the file it came from: only where callers can not tell, with a backup, never over edits.

The order for everyone who writes: :func:`seen` what is there, :func:`check_drop_in`, a judgement of the new text by whoever
can make one, :func:`apply`.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from acceld.errors import UsageError
from acceld.model import Kernel
from acceld.watch.interface import c_differences, python_differences


def seen(path: Path) -> str:
    """The sha256 of a file as it is now. UsageError where there is none."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError as error:
        raise UsageError(f"there is no file {path}", hint=f"to write a new one: -o {path}") from error
    except OSError as error:
        raise UsageError(f"can not read {path}: {error.strerror}") from error


def check_drop_in(path: Path, kernel: Kernel) -> None:
    """UsageError where whoever uses the file could not use ``kernel`` in its place the same way."""
    own = Path(kernel.filename).suffix or (".c" if kernel.api == "c" else ".py")
    if path.suffix != own:
        raise UsageError(f"{path} is no {own} file, as the kernel is", hint="to write a new file: -o FILE")
    find = c_differences if own == ".c" else python_differences
    try:
        found = find(path.read_text(encoding="utf-8"), kernel.text, kernel.entry)
    except (SyntaxError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} can not be read as a kernel: {error}", hint="to write a new file: -o FILE") from error
    if found:
        raise UsageError(
            f"the kernel is no drop-in for {path}: {'; '.join(found)}",
            hint="compare them, and write a new file: acceld best r12 -o FILE",
        )


def apply(path: Path, text: str, expected_sha256: str) -> Path:
    """Replace ``path`` by ``text``; returns the backup. UsageError where the file is no longer what it was made from."""
    path = path.resolve()  # where it is a link, what it points to is written
    if seen(path) != expected_sha256:
        raise UsageError(
            f"{path} has changed since it was looked at; nothing was written",
            hint="look at it, then apply again; in a watch, a save starts from the new text",
        )
    backup = path.with_name(f"{path.name}.{expected_sha256[:8]}.bak")
    part = path.with_name(f".{path.name}.acceld-part")
    try:
        mode = path.stat().st_mode & 0o777
        for place, content in ((backup, path.read_bytes()), (part, text.encode("utf-8"))):
            place.write_bytes(content)
            os.chmod(place, mode)
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UsageError(f"can not write {path}: {error.strerror}") from error
    return backup
