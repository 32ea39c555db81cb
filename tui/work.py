"""Start work that runs in the background of the screens."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from textual.dom import DOMNode


def start(
    node: DOMNode,
    work: Callable[[], Coroutine[Any, Any, None]],
    *,
    name: str = "",
    group: str = "default",
    exclusive: bool = False,
) -> None:
    """Start ``work`` in the background. The work ends when ``node`` is removed. An error of the work does not end the
    application.

    ``work`` is a function that returns a coroutine. A coroutine itself would cause a warning if the application
    ended before starting it.
    """
    # Textual's type for work has no result type, so mypy infers Never.
    node.run_worker(work, name=name, group=group, exclusive=exclusive, exit_on_error=False)  # type: ignore[arg-type]  # mypy infers Never
