"""Interface between routes and daemon. The read-only history server has no control, only a database."""

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
        """Return events after a number, those that are there at once together."""
        ...


class Control(Protocol):
    """Requests to a running daemon. Errors are AcceldErrors."""

    def hello(self) -> Json:
        """Return the daemon's identity."""
        ...

    async def status(self) -> Json:
        """Return the current status."""
        ...

    async def queue(self) -> Json:
        """Return evaluations that run and wait, devices."""
        ...

    async def hosts(self) -> list[Json]:
        """Return hosts of a fleet; empty without one."""
        ...

    async def doctor_of(self, host: str) -> list[Json]:
        """Return what a host reports as missing. Raise UsageError for an unknown host."""
        ...

    async def change_host(self, host: str, action: str) -> None:
        """Drain or undrain a host. UsageError for one that is not there."""
        ...

    async def submit(self, spec: Mapping[str, Any]) -> int:
        """Start a run; its id. UsageError for a specification that can not be used."""
        ...

    async def act(self, run: int, action: str, arguments: Mapping[str, Any], by: str) -> str:
        """Steer a run; what was done."""
        ...

    def steering(self, run: int) -> Json:
        """Return the settings that people changed on an active run; empty for another."""
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
        """Begin an orderly shutdown; answer at once."""
        ...

    def touched(self) -> None:
        """Somebody asked for something other than how it goes."""
        ...

    def client_came(self) -> None:
        """A websocket was opened."""
        ...

    def client_left(self) -> None:
        """A websocket was closed."""
        ...
