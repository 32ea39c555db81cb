"""Talk to Ray in a child process of the daemon. The child gets the descriptor of a socket to the daemon.

Each node with the resource ``acceld`` has one Ray actor, which owns the node's evaluator. Ray places these actors, and
decides nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import sys
import textwrap
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any

import ray
from ray.autoscaler.sdk import request_resources
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from acceld import plugins
from acceld.cluster.host import HostLostError, LocalHost
from acceld.cluster.remote import Setup, receive, send
from acceld.config import Config
from acceld.errors import AcceldError
from acceld.evaluate.interface import EvaluationRequest, Evaluator, Workplace
from acceld.evaluate.local import local
from acceld.evaluate.queue import slots_of

RESOURCE = "acceld"
"""A node is a host if it was started with ``--resources '{"acceld": 1}'``."""
_CALLS = 4096
_ENVIRONMENT = {f"RAY_EXPERIMENTAL_NOSET_{name}": "1" for name in ("NEURON_RT_VISIBLE_CORES", "CUDA_VISIBLE_DEVICES")}
"""Environment that keeps Ray from hiding cores, because each node's evaluator leases its cores itself."""


def own_evaluator(setup: Setup, name: str, folder: Path) -> Evaluator:
    """Return the evaluator of this machine, which keeps its state in ``folder``."""
    return local(lambda: Workplace(setup.config, setup.devices, folder))


class Served:
    """Offer a host's methods as a Ray actor. Errors are returned as values, because Ray would wrap exceptions."""

    def __init__(self, name: str, setup: Setup) -> None:
        self._name, self._setup = name, setup
        self._host: LocalHost | None = None

    async def describe(self) -> Any:
        """Return the host's facts. The first call builds and starts the host's evaluator."""
        if self._host is None:
            folder = folder_of(self._name)
            evaluator = plugins.named(self._setup.evaluator)(self._setup, self._name, folder)
            config = Config(evaluate=self._setup.config, devices=self._setup.devices)
            self._host = LocalHost(self._name, slots_of(config.evaluate), evaluator, folder, config)
        return await _value(self._host.describe())

    async def evaluate(self, request: EvaluationRequest, contents: Mapping[str, bytes]) -> Any:
        """Return the evaluation of a request whose texts are named by hash (:func:`acceld.cluster.host.packed`), or an
        error.
        """
        assert self._host is not None, "described before it evaluates"
        return await _value(self._host.evaluate(request, contents))

    async def health(self) -> Any:
        """Return the evaluator's statistics."""
        assert self._host is not None, "described before it is asked"
        return await _value(self._host.health())

    async def doctor(self) -> Any:
        """Return what ``acceld doctor`` finds on the host's devices."""
        assert self._host is not None, "described before it is asked"
        return await _value(self._host.doctor())


async def _value(answer: Awaitable[Any]) -> Any:
    try:
        return await answer
    except AcceldError as error:
        return error


def folder_of(name: str) -> Path:
    """Return the folder of a host's stored contents, data sets and noise floors. Only the host's user can enter it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "acceld" / "hosts" / re.sub(r"[^\w.-]", "_", name)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


class _Cluster:
    """The actors of a Ray cluster: one for each node with the resource ``acceld``."""

    def __init__(self) -> None:
        self._actors: dict[str, Any] = {}
        self._lives: dict[str, str] = {}
        self._setup: Setup
        self._wanted = 0

    def connect(self, address: str, setup: Setup) -> None:
        self._setup = setup
        ray.init(address=address, namespace=f"acceld-{os.getpid()}", log_to_driver=False, logging_level=logging.ERROR)

    def found(self, wanted: int) -> dict[str, str]:
        """Return the key of each host's actor, as a dict by the host's name. New hosts get an actor first.

        Ray's autoscaler is asked for ``wanted`` hosts.
        """
        if wanted != self._wanted:
            request_resources(bundles=[{RESOURCE: 1}] * wanted)
            self._wanted = wanted
        found: dict[str, str] = {}
        for node in ray.nodes():
            if node["Alive"] and node["Resources"].get(RESOURCE, 0) >= 1:
                found[node["NodeName"]] = self._actor(node["NodeID"], node["NodeName"])
        for node_id, actor in list(self._lives.items()):
            if actor not in found.values():
                del self._lives[node_id]
                self._actors.pop(actor, None)
        return found

    def _actor(self, node: str, name: str) -> str:
        known = self._lives.get(node)
        if known in self._actors:
            return str(known)
        actor = ray.remote(Served).options(
            num_cpus=0,
            resources={RESOURCE: 1},
            max_concurrency=_CALLS,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
            runtime_env={"env_vars": _ENVIRONMENT},
        )
        made = actor.remote(name, self._setup)
        self._lives[node] = key = str(id(made))
        self._actors[key] = made
        return key

    async def ask(self, actor: str, method: str, *arguments: object) -> Any:
        """Return a host's answer to a call. Raise HostLostError if the host is gone, or the error that the host
        returned.
        """
        served = self._actors.get(actor)
        if served is None:
            raise HostLostError("the host has left the Ray cluster")
        try:
            answer = await getattr(served, method).remote(*arguments)
        except RayError as error:
            self._actors.pop(actor, None)
            raise HostLostError(textwrap.shorten(str(error).splitlines()[0], 200, placeholder=" ...")) from error
        if isinstance(answer, Exception):
            raise answer
        return answer


async def _answer(cluster: _Cluster, writer: asyncio.StreamWriter, number: int, kind: str, arguments: Any) -> None:
    fine, value = True, None
    try:
        if kind == "ask":
            value = await cluster.ask(*arguments)
        else:
            value = await asyncio.to_thread(getattr(cluster, kind), *arguments)
    except (AcceldError, HostLostError) as error:
        fine, value = False, error
    except (RayError, RuntimeError, OSError, ValueError) as error:  # the daemon does not know Ray's exceptions
        told = f"{type(error).__name__}: {error}".splitlines()[0]
        fine, value = False, HostLostError(textwrap.shorten(told, 200, placeholder=" ..."))
    await send(writer, (number, fine, value))


async def main() -> None:
    """Answer the daemon's calls until the daemon ends."""
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=int(sys.argv[1])))
    cluster, tasks = _Cluster(), set[asyncio.Task[None]]()
    try:
        while True:
            number, kind, arguments = await receive(reader)
            task = asyncio.create_task(_answer(cluster, writer, number, kind, arguments))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    except (asyncio.IncompleteReadError, ConnectionError):
        await asyncio.wait_for(asyncio.to_thread(ray.shutdown), 5.0)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    finally:
        os._exit(0)  # so that Ray's threads do not keep this process alive when the daemon has ended
