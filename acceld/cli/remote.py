"""Reach the daemon of another machine through ssh, which forwards its socket and reads its token."""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from acceld.errors import DaemonError, UsageError
from acceld.http.client import Address

TUNNEL_S = 15.0
"""Seconds that ssh may take to forward the socket."""
REMOTE = re.compile(r"ssh://(?P<host>\w[\w.@:-]*?)(?P<folder>/.*)?$")
FIND_STATE = (
    'd="$PWD"; while [ ! -d "$d/.acceld" ] && [ "$d" != / ]; do d=$(dirname "$d"); done; '
    'cat "$d/.acceld/daemon.json" "$d/.acceld/token"'
)
"""Shell command that prints the daemon's record in the nearest state folder, then its token."""


class RemoteDaemon:
    """Connection through ssh to the daemon at an address such as ``ssh://me@host/path/to/.acceld``. Raises
    UsageError for an address of another form.
    """

    def __init__(self, remote: str) -> None:
        match = REMOTE.fullmatch(remote)
        if match is None:
            raise UsageError(
                f"--remote {remote!r} is not an address",
                hint="such as ssh://trn-host or ssh://me@trn-host/home/me/work/.acceld",
            )
        self._host, folder = match["host"], shlex.quote(match["folder"] or "")
        # ssh understands a port only in an address such as ssh://host:22.
        self._destination = f"ssh://{self._host}" if ":" in self._host else self._host
        self._ask = f"cat {folder}/daemon.json {folder}/token" if match["folder"] else FIND_STATE
        self._place = tempfile.TemporaryDirectory(prefix="acceld-")
        self._tunnel: subprocess.Popen[bytes] | None = None
        self._forwarded = ""
        self._local = Path(self._place.name)
        self._tunnels = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        self._place.cleanup()

    def address(self) -> Address:
        """Return the socket and the token of the daemon that runs now: a restarted daemon has a new socket and token.
        Raise DaemonError if no daemon runs.
        """
        found = subprocess.run(
            ["ssh", "-o", "BatchMode=yes", self._destination, self._ask], capture_output=True, text=True, check=False
        )
        lines = found.stdout.strip().splitlines()
        if found.returncode or len(lines) < 2:
            why = found.stderr.strip().splitlines()
            raise DaemonError(
                f"{self._host}: no daemon could be found there{f' ({why[-1]})' if why else ''}",
                hint="start one on that machine (acceld start), or name its state folder: ssh://HOST/path/to/.acceld",
            )
        remote = str(json.loads(lines[0])["socket"])
        if self._tunnel is None or self._tunnel.poll() is not None or remote != self._forwarded:
            self._close()
            self._open(remote)
        return Address(lines[1], self._local, where=self._host)

    def _open(self, remote: str) -> None:
        self._tunnels += 1
        self._forwarded, self._local = remote, Path(self._place.name) / f"{self._tunnels}.sock"
        options = ["-N", "-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes"]
        words = ["ssh", *options, "-L", f"{self._local}:{remote}", self._destination]
        self._tunnel = subprocess.Popen(words, stdin=subprocess.DEVNULL)
        until = time.monotonic() + TUNNEL_S
        while not _listens(self._local):
            if self._tunnel.poll() is not None or time.monotonic() > until:
                raise DaemonError(
                    f"{self._host}: ssh could not forward the daemon's socket", hint="try the same with ssh -v"
                )
            time.sleep(0.05)

    def _close(self) -> None:
        if self._tunnel is not None:
            self._tunnel.terminate()
            self._tunnel.wait()
            self._tunnel = None


def _listens(path: Path) -> bool:
    """Tell whether a process accepts connections at a socket.

    The socket's file is no proof: it appears a moment before the process accepts connections.
    """
    with socket.socket(socket.AF_UNIX) as asking:
        return asking.connect_ex(str(path)) == 0
