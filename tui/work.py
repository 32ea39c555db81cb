"""Start work that goes on beside the screens."""

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
    """Start ``work`` and return at once. The work ends with ``node``. An error in the work does not end the
    application.

    ``work`` is a function, not a coroutine, which would complain if the application ended before it began.
    """
    # Textual's type for work has no result type, so mypy infers Never.
    node.run_worker(work, name=name, group=group, exclusive=exclusive, exit_on_error=False)  # type: ignore[arg-type]
