"""A client of a state folder, whoever serves it: the daemon that runs now, or without one the history, read-only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from acceld.client import not_running
from acceld.errors import DaemonError
from acceld.events import Event
from acceld.home import Home
from acceld.http.client import HttpClient

LOOK_S = 1.0
"""How often a daemon is looked for while there is none."""


class HomeClient:
    """Requests to a state folder. Its daemon may end, start again under another token, or come later.

    Who serves the folder is read again before each request. DaemonError where nobody does and there is no history.
    Without ``history`` only a daemon will do.
    """

    def __init__(self, home: Home, *, history: bool = True, timeout_s: float = 60.0) -> None:
        self.read_only = False
        """True while the history is read without a daemon."""
        self.where = str(home.path)
        self._home, self._history, self._timeout_s = home, history, timeout_s
        self._client: HttpClient | None = None
        self._served_by: object = None
        self._stack = AsyncExitStack()
        self._changing = asyncio.Lock()

    async def get(self, path: str, **parameters: Any) -> Any:
        """Return the JSON answer to GET; parameters that are None are left out."""
        return await (await self._now()).get(path, **parameters)

    async def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON answer to POST, PATCH or DELETE."""
        return await (await self._now()).send(method, path, body)

    async def events(self, after: int, run: int | None = None) -> AsyncIterator[list[Event]]:
        """Yield batches of events after a number; ends where a daemon begins to serve what was only a history."""
        client = await self._now()
        if not self.read_only:
            async for batch in client.events(after, run):
                yield batch
        while await asyncio.to_thread(self._home.daemon) is None:  # noqa: ASYNC110  nobody tells of a file
            await asyncio.sleep(LOOK_S)

    async def follow(self, after: int, run: int | None = None) -> AsyncIterator[list[Event]]:
        """Yield batches of events for ever, over every end of a daemon."""
        while True:
            try:
                async for batch in self.events(after, run):
                    yield batch
                    after = batch[-1].seq
            except DaemonError:
                await asyncio.sleep(LOOK_S)

    async def close(self) -> None:
        """Let go of the connection."""
        self._client, self._served_by = None, None
        await self._stack.aclose()

    async def _now(self) -> HttpClient:
        async with self._changing:
            found = await asyncio.to_thread(self._who)
            if self._client is None or found != self._served_by:
                await self.close()
                self._client = await self._connect(found)
                self._served_by, self.read_only = found, found is None
                self._stack.push_async_callback(self._client.close)
            return self._client

    def _who(self) -> tuple[str, str] | None:
        """Socket and token of the daemon; None where none runs."""
        daemon = self._home.daemon()
        return (daemon["socket"], self._home.token()) if daemon is not None else None

    async def _connect(self, found: tuple[str, str] | None) -> HttpClient:
        if found is not None:
            return HttpClient(socket_path=Path(found[0]), token=found[1], where=self.where, timeout_s=self._timeout_s)
        if not self._history or not await asyncio.to_thread(self._home.database.is_file):
            raise not_running(self._home)
        from acceld.http.server import HistoryServer

        server = await self._stack.enter_async_context(HistoryServer(self._home.database))
        return HttpClient(socket_path=server.socket_path, token=server.token, where=f"{self._home.database}, read-only")
