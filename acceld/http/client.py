"""The asyncio client: requests, and events that go on over broken connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp

from acceld.client import check_version, not_running, understand
from acceld.errors import DaemonError
from acceld.events import Event, EventKind, event_of
from acceld.home import Home

KINDS = frozenset(EventKind)


class HttpClient:
    """A client of the daemon (or history server) that listens on a socket, or of one behind a URL."""

    def __init__(
        self,
        *,
        socket_path: Path | None = None,
        url: str = "http://localhost",
        token: str,
        where: str = "",
        timeout_s: float = 60.0,
    ) -> None:
        self.read_only = False
        """Whether nothing can be changed; known after the first answer of :meth:`hello`."""
        self.where = where or (str(socket_path) if socket_path else url)
        self._socket_path = socket_path
        self._url = url
        self._token = token
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def of(cls, home: Home, *, timeout_s: float = 60.0) -> HttpClient:
        """A client of the daemon of a state folder. DaemonError where none runs."""
        told = home.daemon()
        if told is None:
            raise not_running(home)
        return cls(socket_path=Path(told["socket"]), token=home.token(), where=str(home.path), timeout_s=timeout_s)

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.UnixConnector(str(self._socket_path)) if self._socket_path else None
            headers = {"Authorization": f"Bearer {self._token}"}
            timeout = aiohttp.ClientTimeout(total=self._timeout_s)
            self._session = aiohttp.ClientSession(self._url, connector=connector, headers=headers, timeout=timeout)
        return self._session

    async def hello(self) -> dict[str, Any]:
        """Who answers. DaemonError for another version of the protocol."""
        told: dict[str, Any] = await self.get("/v1/hello")
        check_version(told)
        self.read_only = told["read_only"]
        return told

    async def get(self, path: str, **parameters: Any) -> Any:
        """The JSON answer to GET; parameters that are None are left out."""
        return await self._request("GET", path, parameters, None)

    async def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The JSON answer to POST, PATCH or DELETE."""
        return await self._request(method, path, {}, dict(body or {}))

    async def _request(self, method: str, path: str, parameters: Mapping[str, Any], body: Any) -> Any:
        query = {name: str(value) for name, value in parameters.items() if value is not None}
        try:
            async with self._connected().request(method, path, params=query, json=body) as response:
                raw = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise DaemonError(f"{self.where}: no answer ({_said(error)})", hint="acceld status") from error
        return understand(response.status, raw)

    async def events(self, after: int, run: int | None = None) -> AsyncIterator[list[Event]]:
        """Batches of events after a number, until the connection ends: then DaemonError.

        The caller asks again with the last number it was given, and misses nothing.
        """
        query = {"after": str(after)} | ({"run": str(run)} if run is not None else {})
        try:
            async with self._connected().ws_connect(
                "/v1/events", params=query, heartbeat=20.0, max_msg_size=0
            ) as stream:
                async for message in stream:
                    if message.type is not aiohttp.WSMsgType.TEXT:
                        break
                    told = json.loads(message.data)
                    if "hello" in told:
                        check_version(told["hello"])
                        self.read_only = told["hello"]["read_only"]
                    elif batch := [event_of(event) for event in told.get("events", ()) if event["kind"] in KINDS]:
                        yield batch
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise DaemonError(f"{self.where}: the connection was lost ({_said(error)})") from error
        raise DaemonError(f"{self.where}: the daemon closed the connection")

    async def follow(self, after: int, run: int | None = None) -> AsyncIterator[list[Event]]:
        """As :meth:`events`, but connecting again for ever, at most every two seconds."""
        delay_s = 0.1
        while True:
            try:
                async for batch in self.events(after, run):
                    yield batch
                    after, delay_s = batch[-1].seq, 0.1
            except DaemonError:
                await asyncio.sleep(delay_s)
                delay_s = min(2.0, delay_s * 2)

    async def close(self) -> None:
        """Let go of the connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__
