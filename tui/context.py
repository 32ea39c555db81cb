"""What a screen works with: the state it draws, the requests it makes, the way to other screens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from acceld.errors import AcceldError
from acceld.tui.client import Client
from acceld.tui.console import ConsoleView
from acceld.tui.replay import Replay
from acceld.tui.state import RunView


class Context(Protocol):
    """The application as its screens and its steering see it."""

    client: Client
    replay: Replay | None
    candidate: int | None
    """The candidate in view."""
    banner: str
    """What is wrong with the connection; empty where nothing is."""
    hello: Mapping[str, Any]
    """The daemon's first answer."""

    @property
    def state(self) -> ConsoleView:
        """What the screens show."""
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

    def go_back(self) -> None:
        """Show the screen that was in front before."""
        ...

    def copy(self, text: str, what: str) -> None:
        """Copy to the clipboard; a long text also goes to a file."""
        ...

    def edit(self, text: str, name: str) -> None:
        """Show a copy of a text in $EDITOR."""
        ...

    def complain(self, error: AcceldError) -> None:
        """Show what went wrong and what to do about it."""
        ...
