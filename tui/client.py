"""Define the interface through which screens reach a daemon, or the read-only history server with the same routes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from acceld.events import Event


class Client(Protocol):
    """Send requests by path. Raises DaemonError if there is no answer, or the answer is an error."""

    read_only: bool
    """True if nothing can be changed, as without a daemon."""
    where: str
    """Name of the server, for the title line."""

    async def get(self, path: str, **parameters: Any) -> Any:
        """Return the JSON answer."""
        ...

    async def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON answer to POST, PATCH or DELETE."""
        ...

    def events(self, after: int) -> AsyncIterator[list[Event]]:
        """Yield batches of events after a number, without end."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...
