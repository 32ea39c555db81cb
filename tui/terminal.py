"""Use the terminal from any screen: copy, edit, show an error."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from textual.app import App, SuspendNotSupported

from acceld.errors import AcceldError

LONG = 200
"""Number of characters above which a terminal may cut off a copied text."""


def copy(app: App[Any], text: str, what: str) -> None:
    """Copy to the clipboard by OSC 52; a long text also goes to a file."""
    app.copy_to_clipboard(text)
    if len(text) <= LONG:
        app.notify(f"{what} copied: {text}")
        return
    folder = Path(tempfile.gettempdir()) / f"acceld-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    file = folder / f"{what}.txt"
    file.write_text(text, encoding="utf-8")
    app.notify(f"{what} copied; also in {file}")


def edit(app: App[Any], text: str, name: str) -> None:
    """Show a copy of a text in $EDITOR."""
    with tempfile.TemporaryDirectory(prefix="acceld-") as folder:
        file = Path(folder) / name
        file.write_text(text, encoding="utf-8")
        words = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
        try:
            with app.suspend():
                subprocess.run([*words, str(file)], check=False)
        except (SuspendNotSupported, OSError) as error:
            app.notify(f"{words[0]}: {error}", severity="error")


def complain(app: App[Any], error: AcceldError) -> None:
    """Show an error's message, and what to do about it."""
    app.notify(error.hint or "", title=error.message, severity="error", timeout=8)
