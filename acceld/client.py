"""Provide a blocking client of the daemon. The module imports only the standard library, so that ``acceld status``
starts quickly.
"""

from __future__ import annotations

import http.client
import json
import shlex
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from acceld.errors import (
    AcceldError,
    BudgetError,
    CredentialError,
    DaemonError,
    DeadlineError,
    DeviceError,
    StoreError,
    UsageError,
)
from acceld.home import Home, find_home
from acceld.model import waits_for_remedy

if TYPE_CHECKING:
    from acceld.events import Event

API_VERSION = 1
"""Version of the protocol. Client and daemon must have the same version."""

RETURN_S, RETRY_S = 60.0, 0.5
"""Seconds to wait for a restarted daemon while events are followed, and seconds between two attempts to reach it."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class _NotReached(DaemonError):
    """No process listens on the daemon's socket."""


class Client:
    """Client of the daemon of one state folder. Its methods raise DaemonError if no daemon runs, or if the
    daemon does not answer in time.
    """

    def __init__(self, home: Home, *, timeout_s: float = 30.0) -> None:
        record = home.daemon()
        if record is None:
            raise not_running(home)
        self.home = home
        self.pid: int = record["pid"]
        self.socket_path = Path(record["socket"])
        self.token = home.token()
        self._timeout_s = timeout_s
        self._checked, self._follows = False, True

    @classmethod
    def at(cls, home: Home, socket_path: Path, token: str, *, timeout_s: float = 30.0) -> Client:
        """Return a client of a server at another socket than the daemon's, such as the server that reads the
        history's file.
        """
        made = cls.__new__(cls)
        made.home, made.pid, made.socket_path, made.token = home, 0, socket_path, token
        made._timeout_s, made._checked, made._follows = timeout_s, True, False
        return made

    def get(self, path: str, **parameters: Any) -> Any:
        """Return the JSON answer to GET; parameters that are None are left out."""
        query = urlencode({name: value for name, value in parameters.items() if value is not None})
        return self.send("GET", f"{path}?{query}" if query else path)

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a request with another method than GET, such as POST, and return the JSON answer."""
        if not self._checked:
            self._checked = True
            check_version(self.send("GET", "/v1/hello"))
        text = None if method == "GET" else json.dumps(body or {})
        try:
            status, raw = self._ask(method, path, text)
        except _NotReached as error:
            if not self._moved():
                raise DaemonError(
                    f"lost the daemon (pid {self.pid}): {error}", hint="acceld status says if a daemon runs now"
                ) from error
            status, raw = self._ask(method, path, text)
        if status == 401 and self._moved():
            status, raw = self._ask(method, path, text)
        return understand(status, raw)

    def _ask(self, method: str, path: str, text: str | None) -> tuple[int, bytes]:
        """Send a request, and return the answer's status and body. Raises :class:`_NotReached` if no process
        listens on the socket, and DaemonError if no answer comes.
        """
        connection = _UnixConnection(str(self.socket_path), self._timeout_s)
        headers = {"Authorization": f"Bearer {self.token}"}
        if text is not None:
            headers["Content-Type"] = "application/json"
        try:
            try:
                connection.connect()
            except OSError as error:
                raise _NotReached(str(error), hint="acceld status") from error
            connection.request(method, path, text, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except TimeoutError as error:
            raise DaemonError(
                f"the daemon (pid {self.pid}) did not answer within {self._timeout_s:g} s",
                hint="acceld logs shows its work; acceld restart replaces it",
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise DaemonError(
                f"lost the daemon (pid {self.pid}): {error}", hint="acceld status says if a daemon runs now"
            ) from error
        finally:
            connection.close()

    def _moved(self) -> bool:
        """Look for another daemon of the folder, because the known one is gone. Return True if there is one; requests
        then go to its address.
        """
        record = self.home.daemon() if self._follows else None
        if record is None:
            return False
        found = (record["pid"], Path(record["socket"]), self.home.token())
        if found == (self.pid, self.socket_path, self.token):
            return False
        self.pid, self.socket_path, self.token = found
        return True

    def events(self, after: int, run: int | None = None, wait_s: float = 20.0) -> Iterator[dict[str, Any]]:
        """Yield every event after a number, without end: the existing events, then each new event, as :meth:`pages`
        does.
        """
        for page in self.pages(after, run, wait_s):
            yield from page

    def pages(
        self, after: int, run: int | None = None, wait_s: float = 20.0, lost: Callable[[str], None] | None = None
    ) -> Iterator[list[dict[str, Any]]]:
        """Yield the events after a number, without end, as lists. After ``wait_s`` seconds without an event the list is
        empty.

        ``run`` restricts the events to one run. A restart of the daemon within ``RETURN_S`` seconds loses no event.
        ``lost`` is called with a sentence when the daemon has gone. Raise DaemonError if the daemon stays away for
        longer.
        """
        path = "/v1/events" if run is None else f"/v1/runs/{run}/events"
        gone: float | None = None
        while True:
            try:
                page = self.get(path, after=after, wait_s=wait_s, limit=500)
            except DaemonError as error:
                if gone is None and lost is not None:
                    lost(f"{error.message}; waiting {RETURN_S:.0f} s for another daemon, which acceld start starts")
                gone = gone or time.monotonic()
                if time.monotonic() - gone > RETURN_S:
                    raise
                time.sleep(RETRY_S)
                continue
            gone = None
            after = max([after, *(event["seq"] for event in page["events"])])
            yield page["events"]

    def follow(
        self,
        run: int,
        wait_s: float,
        lost: Callable[[str], None] | None = None,
        quiet: Callable[[], None] = lambda: None,
    ) -> Iterator[Event]:
        """Yield all events of a run in order, and stop after the event by which the run ended or paused itself.
        ``lost`` is as for :meth:`pages`. ``quiet`` is called whenever ``wait_s`` seconds have passed without an event.
        """
        from acceld.events import RunStateChanged, event_of

        for page in self.pages(0, run, wait_s, lost):
            if not page:
                quiet()
            for row in page:
                event = event_of(row)
                yield event
                match event.data:
                    case RunStateChanged(state, message) if state.ended or waits_for_remedy(state, message):
                        return


def not_running(home: Home) -> DaemonError:
    """Return the error that says that no daemon serves a state folder."""
    if home.is_served():
        return DaemonError(
            f"the daemon of {home.path} is starting or ending", hint="give the command again in a few seconds"
        )
    where = "" if home.path == find_home().path else f" --home {shlex.quote(str(home.path))}"
    return DaemonError(f"no daemon runs for {home.path}", hint=f"start one with: acceld start{where}")


def check_version(hello: Mapping[str, Any]) -> None:
    """Raise DaemonError if the daemon has another version of the protocol."""
    if hello["api"] != API_VERSION:
        raise DaemonError(
            f"the daemon (acceld {hello['version']}) speaks protocol {hello['api']}, this acceld {API_VERSION}",
            hint="restart it: acceld restart",
        )


_ERRORS: dict[str, type[AcceldError]] = {
    kind.__name__: kind
    for kind in (BudgetError, CredentialError, DaemonError, DeadlineError, DeviceError, StoreError, UsageError)
}


def understand(status: int, raw: bytes) -> Any:
    """Return the JSON of an answer. If the answer is an error, raise that error with the daemon's exit code."""
    try:
        value = json.loads(raw) if raw else None
    except ValueError as error:
        raise DaemonError(
            f"the daemon's answer is not JSON (status {status})", hint="restart it: acceld restart"
        ) from error
    if status < 400:
        return value
    record = value.get("error", {}) if isinstance(value, dict) else {}
    kind = _ERRORS.get(record.get("kind", ""), DaemonError if status >= 500 or status in (401, 403) else UsageError)
    refusal = kind(record.get("message", f"the daemon answered {status}"), hint=record.get("hint", ""))
    if "exit_code" in record:
        refusal.exit_code = record["exit_code"]
    return _raise(refusal)


def _raise(error: AcceldError) -> Any:
    raise error
