"""Define the interface through which screens reach a daemon, or the read-only server of a history, which has
the same paths.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from acceld.events import Event


class Client(Protocol):
    """Interface of a connection. Its methods raise DaemonError if there is no answer, or if the answer is an
    error.
    """

    read_only: bool
    """True if nothing can be changed, as without a daemon."""
    where: str
    """Name of the server, for the title line."""

    async def get(self, path: str, **parameters: Any) -> Any:
        """Send a GET request, and return the JSON answer."""
        ...

    async def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a POST, PATCH or DELETE request, and return the JSON answer."""
        ...

    def events(self, after: int) -> AsyncIterator[list[Event]]:
        """Yield the events with numbers above ``after`` in batches, without end."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...
