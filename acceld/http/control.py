"""Define what routes need of a daemon. The read-only history server has a database, but no daemon."""

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
    """Interface of a database that routes read: a :class:`store.database.Store` or a
    :class:`store.reader.HistoryFile`.
    """

    path: Path

    async def read(
        self, function: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call ``function`` with a read-only connection and the other arguments, and return its result."""
        ...

    def pages(self, after_seq: int) -> AsyncIterator[list[Event]]:
        """Yield, in batches, the events whose numbers are greater than ``after_seq``."""
        ...


class Control(Protocol):
    """Interface of a running daemon, for routes. Methods raise AcceldError."""

    def hello(self) -> Json:
        """Return the daemon's identity."""
        ...

    def hindrances(self) -> list[str]:
        """Return the reasons for which the daemon takes no run now; [] if it takes runs."""
        ...

    async def status(self) -> Json:
        """Return what the daemon does now."""
        ...

    async def queue(self) -> Json:
        """Return the running and the waiting evaluations, the model calls under way, and the devices."""
        ...

    async def hosts(self) -> list[Json]:
        """Return the hosts of the fleet; [] without a fleet."""
        ...

    async def doctor_of(self, host: str) -> list[Json]:
        """Return what ``acceld doctor`` finds on a host's devices. Raise UsageError for an unknown host."""
        ...

    async def change_host(self, host: str, action: str) -> None:
        """Drain a host if ``action`` is ``drain``, else give it work again. Raise UsageError for an unknown host."""
        ...

    async def submit(self, spec: Mapping[str, Any]) -> int:
        """Start a run, and return its id. Raise UsageError for a specification that can not be used."""
        ...

    async def act(self, run: int, action: str, arguments: Mapping[str, Any], by: str) -> str:
        """Steer a run for the person or program ``by``, and return a message about the action."""
        ...

    def steering(self, run: int) -> Json:
        """Return what people have asked of a run, until the run's end is stored; {} for any other run."""
        ...

    async def evaluate(self, asked: Mapping[str, Any]) -> Json:
        """Evaluate one kernel now, and return the evaluation as JSON-able data."""
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
        """Record a request, so that the daemon does not count as idle. Requests for the daemon's identity and status
        are not recorded.
        """
        ...

    def client_came(self) -> None:
        """Count a client that opened a websocket."""
        ...

    def client_left(self) -> None:
        """Stop counting a client that closed its websocket."""
        ...
