"""The application as its screens and its steering see it. They import this, never the application."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from acceld.errors import AcceldError
from acceld.tui.client import Client
from acceld.tui.console import ConsoleView
from acceld.tui.replay import Replay
from acceld.tui.state import RunView


class Console(Protocol):
    """State, requests and navigation of the console."""

    client: Client
    replay: Replay | None
    candidate: int | None
    """The candidate in view."""
    banner: str
    hello: Mapping[str, Any]

    @property
    def state(self) -> ConsoleView:
        """The folded events."""
        ...

    @property
    def now(self) -> float:
        """Seconds since the epoch; in a replay, the time of the slider."""
        ...

    @property
    def run_view(self) -> RunView | None:
        """The run in view."""
        ...

    def select_run(self, run: int) -> None:
        """Look at a run."""
        ...

    def refresh_screen(self) -> None:
        """Draw the screen in front again."""
        ...

    def action_previous(self) -> None:
        """Go back to the screen before."""
        ...

    def copy(self, text: str, what: str) -> None:
        """Put a text into the clipboard."""
        ...

    def edit(self, text: str, name: str) -> None:
        """Show a copy of a text in the user's editor."""
        ...

    def complain(self, error: AcceldError) -> None:
        """Show an error and what to do about it."""
        ...
