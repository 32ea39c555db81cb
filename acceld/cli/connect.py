"""Connect to the daemon; or read the history from its file, by the same requests."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceld import config
from acceld.cli.arguments import number_of
from acceld.cli.output import say
from acceld.client import Client
from acceld.errors import UsageError
from acceld.home import Home, find_home


def connected(home: str | None) -> tuple[Home, Client]:
    """Return the state folder and a client of its daemon. If no daemon runs, start a daemon, which ends when it is
    idle.
    """
    from acceld.daemon.launch import ensure

    found = find_home(home)
    if found.daemon() is None:
        say(f"starting a daemon for {found.path}")
    ensure(found, idle_exit_s=config.load().config.daemon.idle_exit_s)
    return found, Client(found)


@dataclass(frozen=True, slots=True)
class History:
    """A client that reads the history, and the path of its database file."""

    client: Client
    database: Path

    def get(self, path: str, **parameters: Any) -> Any:
        """Return the JSON answer to GET; parameters that are None are left out."""
        return self.client.get(path, **parameters)


@contextmanager
def reading(home: str | None) -> Iterator[History]:
    """Yield the history of a state folder while the block runs. Raise UsageError if there is no history yet."""
    found = find_home(home)
    if found.daemon() is not None:
        yield History(Client(found), found.database)
        return
    check_history(found)
    with _served(found) as client:
        yield History(client, found.database)


@contextmanager
def history_file(home: str | None) -> Iterator[sqlite3.Connection]:
    """Yield a read-only connection to a state folder's database file, which does not disturb a running daemon.
    Raise UsageError if there is no file.
    """
    from acceld.store.connection import connect_reader

    found = find_home(home)
    check_history(found)
    with closing(connect_reader(found.database)) as connection:
        yield connection


def records(home: str | None, sql: str, parameters: Sequence[Any] = (), **limits: Any) -> list[dict[str, Any]]:
    """Return the rows of an SQL statement over the history, each as a dict by column."""
    from acceld.store.reads.history import query

    with history_file(home) as connection:
        table = query(connection, sql, tuple(parameters), **limits)
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def run_number(home: str | None, text: str) -> int:
    """Return the id of the run that ``r12``, ``12`` or a name means. If several runs have the name, the newest counts.

    Raise UsageError if no run has the name.
    """
    named = None if re.fullmatch(r"r?[0-9]+", text) else run_named(home, text)
    if named is None and re.fullmatch(r"[cie][0-9]+", text):
        raise UsageError(f"{text} is no run", hint=f"acceld show {text} shows it; acceld runs lists the runs")
    return number_of(text, "r") if named is None else named


def run_named(home: str | None, name: str) -> int | None:
    """Return the id of the newest run called ``name``; None if there is none."""
    (found,) = records(home, "SELECT max(id) AS id FROM runs WHERE name = ?", (name,))
    return None if found["id"] is None else int(found["id"])


def run_numbers(home: str | None, texts: Iterable[str]) -> list[int]:
    """Return the ids of the runs that the texts mean, each found by :func:`run_number`."""
    return [run_number(home, text) for text in texts]


def check_history(home: Home) -> None:
    """Raise UsageError if a state folder has no database."""
    if home.path.exists() and not home.path.is_dir():
        raise UsageError(f"{home.path} is a file, not a state folder", hint="give a folder: --home DIR")
    if not home.database.exists():
        raise UsageError(f"there is no history in {home.path} yet", hint="acceld optimize WORKLOAD begins one")


@contextmanager
def _served(home: Home) -> Iterator[Client]:
    """Serve the database file read-only while the block runs, and yield a client of that server."""
    from acceld.http.server import HistoryServer

    ready: Future[tuple[Client, Callable[[], object]]] = Future()

    async def serve() -> None:
        async with HistoryServer(home.database) as server:
            stopped, loop = asyncio.Event(), asyncio.get_running_loop()
            client = Client.at(home, server.socket_path, server.token)
            ready.set_result((client, lambda: loop.call_soon_threadsafe(stopped.set)))
            await stopped.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)  # ready.result() raises the error in the thread that waits for the server

    thread = threading.Thread(target=run, name="acceld-history")
    thread.start()
    try:
        client, stop = ready.result()
        try:
            yield client
        finally:
            stop()
    finally:
        thread.join()
