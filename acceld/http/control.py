"""Define the interface between routes and daemon. The read-only history server has a database but no control."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from acceld.events import Event

P = ParamSpec("P")
T = TypeVar("T")
Json = dict[str, Any]


class Reading(Protocol):
    """A database to read: a :class:`store.database.Store` or a :class:`store.reader.HistoryFile`."""

    path: Path

    async def read(
        self, function: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a function with a read-only connection."""
        ...

    def pages(self, after_seq: int) -> AsyncIterator[list[Event]]:
        """Yield the events after a number, in batches."""
        ...


class Control(Protocol):
    """Interface to a running daemon. Errors are AcceldErrors."""

    def hello(self) -> Json:
        """Return the daemon's identity."""
        ...

    def hindrances(self) -> list[str]:
        """Return why it takes no run now; empty if it is ready for one."""
        ...

    async def status(self) -> Json:
        """Return the current status."""
        ...

    async def queue(self) -> Json:
        """Return running and waiting evaluations, and devices."""
        ...

    async def hosts(self) -> list[Json]:
        """Return hosts of a fleet; empty without one."""
        ...

    async def doctor_of(self, host: str) -> list[Json]:
        """Return the findings of a host's own doctor. Raise UsageError for an unknown host."""
        ...

    async def change_host(self, host: str, action: str) -> None:
        """Drain or undrain a host. UsageError for an unknown host."""
        ...

    async def submit(self, spec: Mapping[str, Any]) -> int:
        """Start a run, and return its id. UsageError for a specification that can not be used."""
        ...

    async def act(self, run: int, action: str, arguments: Mapping[str, Any], by: str) -> str:
        """Steer a run, and return a message about the action."""
        ...

    def steering(self, run: int) -> Json:
        """Return the steering of an active run; empty for another run."""
        ...

    async def evaluate(self, asked: Mapping[str, Any]) -> Json:
        """Evaluate one kernel now."""
        ...

    async def change_insight(self, insight: int, changes: Mapping[str, Any]) -> None:
        """Pin, mute, withdraw or edit an insight."""
        ...

    async def forget_insight(self, insight: int) -> None:
        """Delete an insight."""
        ...

    def stop(self, grace_s: float | None) -> None:
        """Begin an orderly shutdown, and return at once."""
        ...

    def touched(self) -> None:
        """Record a request other than a check of the status."""
        ...

    def client_came(self) -> None:
        """Record that a client's websocket was opened."""
        ...

    def client_left(self) -> None:
        """Record that a client's websocket was closed."""
        ...
