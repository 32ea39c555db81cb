"""Listen on a unix socket that only this user can open, and on a loopback port if one is configured."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import tempfile
from pathlib import Path
from typing import Self

from aiohttp import web

from acceld.errors import ConfigError, DaemonError, UsageError
from acceld.http.application import application
from acceld.http.auth import authorize
from acceld.http.control import Control, Reading
from acceld.store.reader import HistoryFile

SHORT = 60
"""Longest path of a folder with which a socket's path stays within the limit of 107 bytes."""


class Server:
    """Serve the application between ``await start()`` and ``await stop()``."""

    def __init__(
        self,
        reading: Reading,
        control: Control | None,
        *,
        socket_path: Path,
        token: str,
        tcp: str = "",
        log_file: Path | None = None,
    ) -> None:
        self._socket_path = socket_path
        self._tcp = parse_tcp(tcp) if tcp else None
        hosts = frozenset({f"{_bracketed(self._tcp[0])}:{self._tcp[1]}"} if self._tcp else ())
        self.app = application(reading, control, middlewares=[authorize(token, hosts)], log_file=log_file)
        self._runner = web.AppRunner(self.app, access_log=None, handle_signals=False, shutdown_timeout=3.0)
        self._closed = False
        self._inode = 0

    async def start(self) -> None:
        """Listen on the socket, and on the TCP port if one is configured. Raise DaemonError if that is not possible."""
        await self._runner.setup()
        listening = await asyncio.to_thread(bind_private, self._socket_path)
        self._inode = (await asyncio.to_thread(self._socket_path.stat)).st_ino
        await web.SockSite(self._runner, listening).start()
        if self._tcp is not None:
            try:
                await web.TCPSite(self._runner, self._tcp[0], self._tcp[1]).start()
            except OSError as error:
                await self.stop()
                raise DaemonError(
                    f"can not listen on {self._tcp[0]}:{self._tcp[1]}: {error.strerror}",
                    hint="another program may use that port: set daemon.tcp to a free one",
                ) from error

    async def stop(self) -> None:
        """Let running answers finish, close every connection, and remove the socket file."""
        if self._closed:
            return
        self._closed = True
        await self._runner.cleanup()
        await asyncio.to_thread(self._unlink)

    def _unlink(self) -> None:
        """Remove the socket file, unless it belongs to another server by now."""
        with contextlib.suppress(FileNotFoundError):
            if self._socket_path.stat().st_ino == self._inode:
                self._socket_path.unlink()


def bind_private(path: Path) -> socket.socket:
    """Return a listening unix socket whose file has mode 0600 from the beginning. Raise DaemonError if it can not
    listen.

    A socket file that an ended server left is replaced: the caller holds the lock of the state folder.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        # The file gets the mode of the socket. An umask would be that of all threads, which may make files meanwhile.
        os.fchmod(listening.fileno(), 0o600)
        listening.bind(str(path))
    except OSError as error:
        listening.close()
        raise DaemonError(f"can not listen on {path}: {error}", hint="set XDG_RUNTIME_DIR to a short path") from error
    listening.listen(128)
    listening.setblocking(False)
    return listening


def parse_tcp(text: str, given: str = "daemon.tcp = ") -> tuple[str, int]:
    """Return (loopback address, port) from a text such as ``127.0.0.1:7431``. Raise ConfigError for any other text.

    ``given`` begins the error's message with the setting or option that has the text.
    """
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
        if not address.is_loopback or not 0 < int(port) < 65536:
            raise ValueError
    except ValueError as error:
        raise ConfigError(
            f"{given}{text!r} is not a loopback address with a port",
            hint="such as 127.0.0.1:7431. From another machine, use ssh: acceld attach --remote ssh://host.",
        ) from error
    return str(address), int(port)


def refuse_taken(host: str, port: int, option: str) -> None:
    """Raise UsageError if no server can listen on a port. The error's hint names ``option``, which sets the port."""
    if not 0 < port < 65536:
        raise UsageError(f"{port} is not the number of a port", hint=f"give a number from 1 to 65535 with {option}")
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        raise UsageError(
            f"can not listen on {_bracketed(host)}:{port}: {os.strerror(error.errno or 0)}",
            hint=f"another program may use that port: choose another with {option}",
        ) from error


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class HistoryServer:
    """Serve the routes over a database that no daemon serves, read-only, while the block runs.

    ``async with HistoryServer(path) as server``: a client needs ``server.socket_path`` and ``server.token``.
    """

    def __init__(self, database: Path) -> None:
        self._history = HistoryFile(database)
        folder = tempfile.gettempdir()
        self._folder = tempfile.TemporaryDirectory(prefix="acceld-", dir=folder if len(folder) < SHORT else "/tmp")
        self.socket_path = Path(self._folder.name) / "history.sock"
        self.token = os.urandom(32).hex()
        self._server = Server(self._history, None, socket_path=self.socket_path, token=self.token)

    async def __aenter__(self) -> Self:
        await self._server.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._server.stop()
        await self._history.close()
        await asyncio.to_thread(self._folder.cleanup)
