"""Writing a better kernel over the file it came from: in one step, with a backup, and never over newer edits."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from acceld.errors import UsageError


def apply(path: Path, text: str, expected_sha256: str) -> Path:
    """Replace ``path`` by ``text``; returns the backup. UsageError where the file is no longer what it was made from."""
    old = path.read_bytes()
    if hashlib.sha256(old).hexdigest() != expected_sha256:
        raise UsageError(
            f"{path} has changed since; nothing was written", hint="Save again to search from the new text."
        )
    backup = path.with_name(f"{path.name}.{expected_sha256[:8]}.bak")
    backup.write_bytes(old)
    part = path.with_name(f".{path.name}.acceld-part")
    part.write_text(text, encoding="utf-8")
    os.chmod(part, path.stat().st_mode & 0o777)
    os.replace(part, path)
    return backup
