"""Zygotes that the tests of one process share. A start imports numpy and the front ends, which takes longer than most tests'
jobs; a daemon, too, gives all its jobs to the same zygotes.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
from collections import defaultdict

import pytest

from acceld.child import child
from acceld.evaluate.sandbox import process
from acceld.evaluate.sandbox.process import Zygote

_Key = tuple[str, str | None]
"""A zygote's tasks, and PYTHONPATH when the zygote starts."""


class _Running:
    """A zygote's process and the socket to it, used as :class:`Zygote` uses asyncio's processes, but by no event loop."""

    stderr = None

    def __init__(self, key: _Key) -> None:
        self.key = key
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel.setblocking(False)
        start = child(process._ZYGOTE, key[0], str(theirs.fileno()), environment=process._ENVIRONMENT)
        with theirs:
            self._process = subprocess.Popen(
                start.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=start.environment,
                cwd="/",
                start_new_session=True,
            )
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    async def wait(self) -> None:
        await asyncio.to_thread(self._process.wait)

    def end(self) -> None:
        self.channel.close()
        self._process.wait()


class IdleZygotes:
    """Keeps zygotes that were stopped for the next ones with the same tasks and the same PYTHONPATH."""

    def __init__(self) -> None:
        self._idle: defaultdict[_Key, list[_Running]] = defaultdict(list)

    def share(self, patch: pytest.MonkeyPatch) -> None:
        """Let every zygote of this process take a running process, and give it back when it stops."""
        close_own = Zygote._close

        async def start(zygote: Zygote) -> None:
            running = await self._taken((json.dumps(zygote.tasks), os.environ.get("PYTHONPATH")))
            zygote._process, zygote._socket = running, running.channel  # type: ignore[assignment]  # what it uses of these

        async def close(zygote: Zygote) -> None:
            running: object = zygote._process
            if isinstance(running, _Running):
                zygote._process = zygote._socket = None
                self._idle[running.key].append(running)
            else:  # a fixture of a module started it
                await close_own(zygote)

        patch.setattr(Zygote, "_start", start)
        patch.setattr(Zygote, "_close", close)

    async def _taken(self, key: _Key) -> _Running:
        """Return an idle process that still runs, or start one."""
        while idle := self._idle[key]:
            running = idle.pop()
            if running.returncode is None:
                return running
            running.end()
        running = _Running(key)
        try:
            assert await asyncio.get_running_loop().sock_recv(running.channel, 100) == b"ready"
        except BaseException:
            running.end()
            raise
        return running

    def end(self) -> None:
        """End all processes."""
        for running in [one for kept in self._idle.values() for one in kept]:
            running.end()
