"""Talk to the daemon with asyncio: send requests, and follow events over broken connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acceld.client import check_version, not_running, understand
from acceld.errors import DaemonError
from acceld.events import KINDS, Event, event_of
from acceld.home import Home

if TYPE_CHECKING:
    import aiohttp  # the first request imports aiohttp, so that the terminal UI draws its first picture earlier

LOOK_S = 1.0
"""Seconds between two checks, on a quiet event stream, for another daemon on the folder."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a server, and the token that authorizes requests to it."""

    token: str
    socket_path: Path | None = None
    url: str = "http://localhost"
    where: str = ""
    read_only: bool = False


class HttpClient:
    """Send requests to a daemon or a history server, on a unix socket or behind a URL."""

    def __init__(
        self,
        *,
        socket_path: Path | None = None,
        url: str = "http://localhost",
        token: str,
        where: str = "",
        timeout_s: float = 60.0,
    ) -> None:
        where = where or (str(socket_path) if socket_path else url)
        self._begin(Address(token, socket_path, url, where), None, timeout_s)

    @classmethod
    def of(cls, home: Home, *, otherwise: Address | None = None, timeout_s: float = 60.0) -> HttpClient:
        """Return a client of the daemon that serves a state folder. If no daemon does, the client talks to
        ``otherwise``.

        Requests raise DaemonError if there is no daemon and no ``otherwise``.
        """
        made = cls.__new__(cls)
        made._begin(otherwise, home, timeout_s)
        return made

    @classmethod
    def looked_up(cls, find: Callable[[], Address], *, timeout_s: float = 60.0) -> HttpClient:
        """Return a client of the server whose address ``find`` returns.

        ``find`` is called now, and again only after a request was refused or failed, because it may be slow.
        """
        made = cls.__new__(cls)
        made._begin(find(), None, timeout_s)
        made._find = find
        return made

    def _begin(self, fixed: Address | None, home: Home | None, timeout_s: float) -> None:
        self.read_only = fixed is not None and fixed.read_only
        """True if nothing can be changed. Known after the first answer of :meth:`hello`."""
        self.where = fixed.where if fixed else str(home.path) if home else ""
        self._fixed, self._home, self._timeout_s = fixed, home, timeout_s
        self._find: Callable[[], Address] | None = None
        self._address: Address | None = None
        self._session: aiohttp.ClientSession | None = None

    def _serving(self) -> Address:
        """Return the present address; a restarted daemon has a new token. Raise DaemonError if no server is known."""
        reported = self._home.daemon() if self._home else None
        if self._home is not None and reported is not None:
            return Address(self._home.token(), Path(reported["socket"]), where=str(self._home.path))
        if self._fixed is None:
            assert self._home is not None
            raise not_running(self._home)
        return self._fixed

    async def _connected(self) -> aiohttp.ClientSession:
        import aiohttp

        address = await asyncio.to_thread(self._serving) if self._home else self._serving()
        if self._session is None or address != self._address:
            await self.close()
            connector = aiohttp.UnixConnector(str(address.socket_path)) if address.socket_path else None
            headers = {"Authorization": f"Bearer {address.token}"}
            timeout = aiohttp.ClientTimeout(total=self._timeout_s)
            self._session = aiohttp.ClientSession(address.url, connector=connector, headers=headers, timeout=timeout)
            self._address, self.where, self.read_only = address, address.where, address.read_only
        return self._session

    async def hello(self) -> dict[str, Any]:
        """Return the daemon's identity. Raise DaemonError if the daemon has another version of the protocol."""
        reported: dict[str, Any] = await self.get("/v1/hello")
        check_version(reported)
        self.read_only = reported["read_only"]
        return reported

    async def get(self, path: str, **parameters: Any) -> Any:
        """Return the JSON answer to GET. Parameters that are None are left out of the query."""
        return await self._request("GET", path, parameters, None)

    async def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON answer to POST, PATCH or DELETE."""
        return await self._request(method, path, {}, dict(body or {}))

    async def _request(self, method: str, path: str, parameters: Mapping[str, Any], body: Any) -> Any:
        query = {name: str(value) for name, value in parameters.items() if value is not None}
        status, raw = await self._ask(method, path, query, body)
        if status == 401 and self._find is not None:
            self._fixed = await asyncio.to_thread(self._find)
            status, raw = await self._ask(method, path, query, body)
        return understand(status, raw)

    async def _ask(self, method: str, path: str, query: Mapping[str, str], body: Any) -> tuple[int, bytes]:
        import aiohttp

        try:
            session = await self._connected()
            async with session.request(method, path, params=query, json=body) as response:
                return response.status, await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if self._find is not None and not isinstance(error, TimeoutError):
                # for the next request; this one fails with DaemonError, which is clearer than aiohttp's error
                self._fixed = await asyncio.to_thread(self._find)
            raise DaemonError(
                f"{self.where}: no answer ({_said(error)})", hint="acceld status says if a daemon runs now"
            ) from error

    async def events(self, after: int, run: int | None = None) -> AsyncIterator[list[Event]]:
        """Yield batches of events with numbers greater than ``after``. When the connection ends, raise DaemonError.

        Call again with the number of the last event: then no event is missed.
        """
        import aiohttp

        query = {"after": str(after)} | ({"run": str(run)} if run is not None else {})
        try:
            session = await self._connected()
            address = self._address
            async with session.ws_connect("/v1/events", params=query, heartbeat=20.0, max_msg_size=0) as stream:
                while True:
                    try:
                        message = await stream.receive(LOOK_S if self._home else None)
                    except TimeoutError:
                        if address != await asyncio.to_thread(self._serving):
                            raise DaemonError(
                                f"{self.where}: another daemon answers now",
                                hint="the former daemon was replaced, as acceld restart does: connect again, and ask for the events after the last one",
                            ) from None
                        continue
                    if message.type is not aiohttp.WSMsgType.TEXT:
                        break
                    reported = json.loads(message.data)
                    if "hello" in reported:
                        check_version(reported["hello"])
                        self.read_only = reported["hello"]["read_only"]
                    elif batch := [event_of(event) for event in reported.get("events", ()) if event["kind"] in KINDS]:
                        yield batch
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise DaemonError(
                f"{self.where}: the connection was lost ({_said(error)})",
                hint="acceld status says if a daemon runs now; if so, ask again for the events after the last one",
            ) from error
        raise DaemonError(
            f"{self.where}: the daemon closed the connection",
            hint="acceld status says if a daemon runs now; if so, ask again for the events after the last one",
        )

    async def follow(self, after: int, run: int | None = None) -> AsyncIterator[list[Event]]:
        """Yield batches as :meth:`events` does, and connect again within two seconds after each break.

        The batches never end, so the caller has to cancel the iteration.
        """
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
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__
