"""Fleets of hosts in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest_asyncio

from acceld.cluster.fleet import Fleet
from acceld.cluster.host import Host, HostFacts, HostLostError, LocalHost
from acceld.device import Finding
from acceld.evaluate.interface import EvaluationRequest, Priority
from acceld.model import Evaluation, Gate, Kernel
from tests.acceld.cluster.simulated_device import SimulatedDevice

BASELINE = Kernel("latency 100.0 # baseline", "nki_legacy")


class FakeHost:
    """A host in this process that can be frozen and lost."""

    def __init__(self, name: str, folder: Path, slots: int = 2, **device: object) -> None:
        self.device = SimulatedDevice(name, slots, **device)  # type: ignore[arg-type]
        self.facts = HostFacts(name, slots, instance_type=f"{name}.large", driver="7.1")
        self.running = asyncio.Event()
        self.running.set()
        self.lost = asyncio.Event()
        self.asked = 0
        self._here = LocalHost(name, slots, self.device, folder)

    async def describe(self) -> HostFacts:
        """Return the host's name, address and resources."""
        return self.facts

    async def evaluate(self, request: EvaluationRequest, contents: Mapping[str, bytes]) -> Evaluation:
        """Return a result, once the host runs."""
        self.asked += 1
        evaluating = asyncio.ensure_future(self._evaluate(request, contents))
        losing = asyncio.ensure_future(self.lost.wait())
        try:
            await asyncio.wait({evaluating, losing}, return_when=asyncio.FIRST_COMPLETED)
            if self.lost.is_set():
                raise HostLostError("the node is gone")
            return evaluating.result()
        finally:
            evaluating.cancel()
            losing.cancel()

    async def _evaluate(self, request: EvaluationRequest, contents: Mapping[str, bytes]) -> Evaluation:
        await self.running.wait()
        return await self._here.evaluate(request, contents)

    async def health(self) -> Mapping[str, object]:
        """Return statistics, once the host runs."""
        await self.running.wait()
        return await self._here.health()

    async def doctor(self) -> list[Finding]:
        """Return the findings of the host's doctor, once the host runs."""
        await self.running.wait()
        return [Finding("core 3", "note", "out of service")]


class FakeHosts:
    """The hosts that are present now."""

    def __init__(self) -> None:
        self.here: dict[str, Host] = {}
        self.wanted = 0

    async def start(self) -> None:
        """Do nothing."""

    async def found(self, wanted: int) -> Mapping[str, Host]:
        """Return the hosts."""
        self.wanted = wanted
        return dict(self.here)

    async def close(self) -> None:
        """Do nothing."""


class World:
    """A fleet, its hosts, its clock, and its messages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hosts = FakeHosts()
        self.now = 0.0
        self.reported: list[tuple[str, str, str]] = []
        self.started: list[tuple[int, str]] = []
        self.fleet = Fleet(self.hosts, 64, on_start=self._note_start, on_host=self._note_host, clock=lambda: self.now)

    async def _note_start(self, request: EvaluationRequest, host: str) -> None:
        self.started.append((request.candidate, host))

    async def _note_host(self, host: str, state: str, why: str) -> None:
        self.reported.append((host, state, why))

    async def add(self, name: str, slots: int = 2, **device: object) -> FakeHost:
        """Start a host, and make the fleet notice it."""
        host = self.hosts.here[name] = FakeHost(name, self.folder / name, slots, **device)
        await self.look()
        await until(lambda: self.standing(name) not in ("", "silent"))
        return host

    async def look(self, after_s: float = 0.0) -> None:
        """Let time pass, and let the fleet check its hosts."""
        self.now += after_s
        await self.fleet.look()

    def standing(self, name: str) -> str:
        """Return a host's standing as people see it."""
        hosts: list[dict[str, str]] = self.fleet.statistics()["hosts"]  # type: ignore[assignment]
        return next((host["standing"] for host in hosts if host["host"] == name), "")


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; a generous limit ends a test that would hang."""
    async with asyncio.timeout(300):
        while not condition():  # noqa: ASYNC110 - hosts and runs set no event for it
            await asyncio.sleep(0.001)


def request(text: str = "latency 90.0", number: int = 1, **more: object) -> EvaluationRequest:
    """Return a candidate of run 1, measured."""
    values: dict[str, object] = {
        "backend": "neuron_legacy",
        "run": 1,
        "candidate": number,
        "gate": Gate.SEARCH,
        "priority": Priority.SEARCH,
        "against": (BASELINE,),
        "against_us": (100.0,),
        "canary": BASELINE,
        "context": "c",
    }
    return EvaluationRequest(Kernel(text, "nki_legacy"), "silu", "trn1", **(values | more))  # type: ignore[arg-type]


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    await made.fleet.stop(0.0)
