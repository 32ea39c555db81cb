"""Reach the hosts of a Ray cluster through a child process, the only process that imports Ray.

Ray ends a process whose head node is gone for long, and must not end the daemon. When the child ends, every host
counts as lost, the work of all hosts is queued again, and a new child is started. The child's environment has only
what Ray needs.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import pickle
import socket
import struct
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from acceld.child import child
from acceld.cluster.host import Host, HostFacts, HostLostError
from acceld.config import DevicesConfig, EvaluateConfig
from acceld.device import Finding
from acceld.errors import DeviceError
from acceld.evaluate.interface import EvaluationRequest
from acceld.model import Evaluation

CONNECT_S = 60.0
_LOOK_S = 20.0
_TRIES = 3
"""Failed checks in a row before another child is started. A child never finds a new head node in place of its first."""
_LENGTH = struct.Struct("!Q")
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings from which a host builds its evaluator."""

    config: EvaluateConfig
    devices: DevicesConfig
    evaluator: str = "acceld.cluster.bridge:own_evaluator"
    """Name of a function that takes a Setup, the host's name and its folder, and returns the host's evaluator."""


def environment() -> dict[str, str]:
    """Return the environment of the child, which has no key and no token of the daemon."""
    return {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith("RAY_")}


async def send(writer: asyncio.StreamWriter, message: object) -> None:
    """Write one message to the process at the other end."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    writer.write(_LENGTH.pack(len(data)) + data)
    await writer.drain()


async def receive(reader: asyncio.StreamReader) -> Any:
    """Return one message of the process at the other end. Raise IncompleteReadError if that process has ended."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return pickle.loads(await reader.readexactly(length))


class RayHosts:
    """Find the hosts of a Ray cluster. Implements :class:`acceld.cluster.host.Hosts`."""

    def __init__(self, address: str, setup: Setup) -> None:
        self._address, self._setup = address, setup
        self._bridge: _Bridge | None = None
        self._hosts: dict[tuple[_Bridge, str, str], RayHost] = {}
        self._failed = 0

    async def start(self) -> None:
        """Check that Ray is installed, and raise DeviceError if not. The connection is made by :meth:`found`."""
        if find_spec("ray") is None:
            raise DeviceError("devices.cluster needs Ray", hint="pip install 'acceld[cluster]'")

    async def found(self, wanted: int) -> Mapping[str, Host]:
        """Return the hosts by name. A child that has ended, or has lost the cluster, is replaced first.

        Raise HostLostError if the cluster does not answer.
        """
        if self._bridge is None or self._bridge.ended or self._failed >= _TRIES:
            await self.close()
            self._failed = 0
            self._bridge = _Bridge(self._address, self._setup)
            try:
                await self._bridge.start()
            except HostLostError as lost:
                await self.close()
                raise HostLostError(f"the Ray cluster {self._address} can not be reached: {lost}") from lost
        bridge = self._bridge
        try:
            names = await asyncio.wait_for(bridge.call("found", wanted), _LOOK_S)
        except TimeoutError:
            self._failed += 1
            raise HostLostError(f"the Ray cluster {self._address} gave no answer in {_LOOK_S:g} s") from None
        except HostLostError:
            self._failed += 1
            raise
        self._failed = 0
        keys = [(bridge, name, actor) for name, actor in names.items()]
        self._hosts = {key: self._hosts.get(key) or RayHost(bridge, key[2]) for key in keys}
        return {name: host for (_, name, _), host in self._hosts.items()}

    async def close(self) -> None:
        """End the child, so that Ray ends the child's actors."""
        if self._bridge is not None:
            await self._bridge.stop()


class RayHost:
    """A host behind one Ray actor. Implements :class:`acceld.cluster.host.Host`."""

    def __init__(self, bridge: _Bridge, actor: str) -> None:
        self._bridge, self._actor = bridge, actor

    async def describe(self) -> HostFacts:
        """Return the host's facts: name, instance type, versions."""
        found: HostFacts = await self._bridge.call("ask", self._actor, "describe")
        return found

    async def evaluate(self, request: EvaluationRequest, contents: Mapping[str, bytes]) -> Evaluation:
        """Return the evaluation of a packed request."""
        found: Evaluation = await self._bridge.call("ask", self._actor, "evaluate", request, contents)
        return found

    async def health(self) -> Mapping[str, object]:
        """Return the statistics of the host's evaluator."""
        found: Mapping[str, object] = await self._bridge.call("ask", self._actor, "health")
        return found

    async def doctor(self) -> list[Finding]:
        """Return what ``acceld doctor`` finds on the host's devices."""
        found: list[Finding] = await self._bridge.call("ask", self._actor, "doctor")
        return found


class _Bridge:
    """The child process that talks to Ray, and the calls that wait for its answers."""

    def __init__(self, address: str, setup: Setup) -> None:
        self._address, self._setup = address, setup
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count()
        self.ended = False

    async def start(self) -> None:
        """Start the child, and let it connect to the cluster. Raise HostLostError if the child does not connect."""
        ours, theirs = socket.socketpair()
        bridge = child("acceld.cluster.bridge", str(theirs.fileno()), environment=environment())
        self._process = await asyncio.to_thread(
            subprocess.Popen,
            bridge.command,
            pass_fds=(theirs.fileno(),),
            env=bridge.environment,
            cwd="/",  # Ray puts the current folder on the path of its workers
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._reading = asyncio.create_task(self._read(reader))
        try:
            await asyncio.wait_for(self.call("connect", self._address, self._setup), CONNECT_S)
        except TimeoutError:
            await self.stop()
            raise HostLostError(f"the Ray cluster {self._address} gave no answer in {CONNECT_S:g} s") from None

    async def call(self, kind: str, *arguments: object) -> Any:
        """Return the child's answer to a call, or raise the error that it answers. Raise HostLostError if the child
        has ended.
        """
        if self.ended or self._writer is None:
            raise HostLostError("Ray's process has ended")
        number = next(self._numbers)
        future = self._calls[number] = asyncio.get_running_loop().create_future()
        try:
            await send(self._writer, (number, kind, arguments))
            return await future
        except ConnectionError as error:
            raise HostLostError("Ray's process has ended") from error
        finally:
            self._calls.pop(number, None)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                number, fine, value = await receive(reader)
                future = self._calls.get(number)
                if future is not None and not future.done():
                    future.set_result(value) if fine else future.set_exception(value)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.ended = True
            for future in self._calls.values():
                if not future.done():
                    future.set_exception(HostLostError("Ray's process has ended"))

    async def stop(self) -> None:
        """End the child process that talks to Ray."""
        self.ended = True
        if self._writer is not None:
            self._writer.close()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        for future in self._calls.values():
            if not future.done():
                future.set_exception(HostLostError("Ray's process has ended"))
        if self._process is not None:
            try:
                await asyncio.to_thread(self._process.wait, 5.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                await asyncio.to_thread(self._process.wait)
