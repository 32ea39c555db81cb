"""Use the terminal from any screen: copy a text, edit a text, or show an error."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from textual.app import App, SuspendNotSupported
from textual.binding import Binding
from textual.dom import DOMNode

from acceld.errors import AcceldError

APPLY, UNDO = "app.steer('apply_best')", "app.steer('undo_apply')"
"""Names of the actions whose keys messages mention."""
LONG = 200
"""Number of characters above which a terminal may cut off a copied text."""


def bindings_of(node: DOMNode) -> list[Binding]:
    """Return the keys of a screen or of the application, with the changes that the person's settings make."""
    found = node._bindings.copy()
    found.apply_keymap(node.app._keymap)
    return [binding for _, binding in found]


def key_of(node: DOMNode, action: str) -> str:
    """Return how the key of an action is shown, for an action of a screen or of the application."""
    known = (binding for place in (node, node.app) for binding in bindings_of(place))
    return next(node.app.get_key_display(binding) for binding in known if binding.action == action)


def copy(app: App[Any], text: str, what: str) -> None:
    """Copy a text to the clipboard by the escape sequence OSC 52. A long text is also written to a file."""
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
    """Open a copy of a text in $VISUAL, $EDITOR or vi."""
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
    """Show the message of an error and what to do about it."""
    app.notify(error.hint or "", title=error.message, severity="error", timeout=8)
