"""Measure a fleet of Ray nodes on this machine: throughput by number of nodes, and what faults do to a run.

The nodes' devices only wait. ``make bench-fleet`` measures everything; ``--only throughput,killed`` chooses
parts, ``--nodes 1,8 --seconds 5`` sets the size. The exit code is 1 if a limit of docs/fleet.md is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from acceld.cluster.fleet import Fleet
from acceld.cluster.host import Host, HostFacts
from acceld.device import Finding
from acceld.errors import DaemonError
from acceld.evaluate.interface import EvaluationRequest
from acceld.home import Home
from acceld.model import Check, Correctness, Evaluation, Profile, Source, Status
from acceld.store.changes.tree import keep_evaluation
from acceld.store.database import Store
from tests.acceld.cluster.conftest import request
from tests.acceld.cluster.nodes import Nodes, nodes
from tests.acceld.cluster.runs import Decisions, decide, decisions_of
from tests.faults.harness import client_of, start

SLOTS = 32
ROUNDS, WARM, COUNTED = 12, 2, 8
"""Evaluations of a slot: all of them, those before the measurement, and those during the measurement."""
JITTER = 0.2
"""Relative spread of delays, so that devices do not end in step: an evaluation takes 0.8 to 1.2 of the mean."""
LEAST_SHARE, MOST_CPU_MS = 0.93, 10.0
NAMES = ("h0", "h1", "h2", "h3")
SEARCH = {"beam_width": 3, "plans": 4, "attempts": 2, "iterations": 3, "patience": 0}
Fault = Callable[[Nodes, Fleet], Awaitable[None]]


async def seated(fleet: Fleet, count: int) -> None:
    """Wait until ``count`` hosts accept work."""
    async with asyncio.timeout(120):
        while sum(one["standing"] == "active" for one in fleet.statistics()["hosts"]) < count:  # type: ignore[attr-defined]  # noqa: ASYNC110
            await asyncio.sleep(0.5)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def throughput(folder: Path, count: int, seconds: float) -> dict[str, Any]:
    """Return the evaluations a second of ``count`` nodes while all slots are busy, and what they cost the
    daemon.

    Every result is written to the store.
    """
    names = [f"h{number}" for number in range(count)]
    with nodes(folder, *names) as there:
        there.instruct("*", delay_s=seconds, jitter=JITTER)
        fleet = there.fleet(SLOTS)
        await fleet.start()
        await seated(fleet, count)
        bridge = fleet._hosts._bridge._process.pid  # type: ignore[attr-defined]
        return {"nodes": count, **await _worked_off(folder, fleet, count, seconds, lambda: _cpu_s(bridge))}


async def _worked_off(
    folder: Path, fleet: Fleet, count: int, seconds: float, child_cpu_s: Callable[[], float]
) -> dict[str, Any]:
    store = await asyncio.to_thread(Store.open, folder / "acceld.db")
    wanted, most_waiting, ended_at = count * SLOTS * ROUNDS, 0, list[float]()

    async def one(number: int) -> None:
        nonlocal most_waiting
        asked = request(f"latency {number}.5", 0, run=1 + number % 4)
        found = await fleet.evaluate(asked)
        await store.change(keep_evaluation, found, workload="silu", backend="neuron_legacy", chip="trn1", key=asked.key)
        ended_at.append(time.monotonic())
        most_waiting = max(most_waiting, len(fleet._schedule.waiting))

    began, cpu, theirs = time.monotonic(), time.process_time(), child_cpu_s()
    await asyncio.gather(*(one(number) for number in range(1, wanted + 1)))
    start_at = began + WARM * seconds
    counted = sum(start_at <= at < start_at + COUNTED * seconds for at in ended_at)
    result = {
        "evaluations": wanted,
        "per_s": round(counted / (COUNTED * seconds), 2),
        "share_of_ideal": round(counted / (count * SLOTS * COUNTED), 3),
        "all_s": round(time.monotonic() - began, 1),
        "daemon_cpu_ms": round(1000 * (time.process_time() - cpu) / wanted, 2),
        "ray_child_cpu_ms": round(1000 * (child_cpu_s() - theirs) / wanted, 2),
        "most_waiting": most_waiting,
        "daemon_peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        "load": round(os.getloadavg()[0], 1),
    }
    await fleet.stop(0.0)
    await store.close()
    return result


class _Near:
    """A host of the benchmark that runs in this process. Its evaluations only wait."""

    def __init__(self, name: str, seconds: float) -> None:
        self._facts, self._seconds = HostFacts(name, SLOTS), seconds
        self._places = asyncio.Semaphore(SLOTS)

    async def describe(self) -> HostFacts:
        """Return the name and the number of slots of the host."""
        return self._facts

    async def evaluate(self, request: EvaluationRequest, contents: Mapping[str, bytes]) -> Evaluation:
        """Return a passed evaluation after a delay."""
        async with self._places:
            await asyncio.sleep(self._seconds * random.uniform(1 - JITTER, 1 + JITTER))
        profile = Profile(Source.MEASURED, "trn1", "nki_legacy", 90.0, "a clock")
        correctness = Correctness(request.gate, 1e-7, 1e-5, checks=(Check("own", True),))
        return Evaluation(Status.PASSED, request.kernel.sha256, profile=profile, correctness=correctness)

    async def health(self) -> Mapping[str, object]:
        """Return no figures."""
        return {}

    async def doctor(self) -> list[Finding]:
        """Return no findings."""
        return []


class _AllNear:
    def __init__(self, count: int, seconds: float) -> None:
        self._hosts: dict[str, Host] = {f"h{number:03}": _Near(f"h{number:03}", seconds) for number in range(count)}

    async def start(self) -> None:
        """Do nothing: there is no cluster."""

    async def found(self, wanted: int) -> Mapping[str, Host]:
        """Return all hosts at once."""
        return self._hosts

    async def close(self) -> None:
        """Do nothing: there is no connection."""


async def scheduled(folder: Path, count: int, seconds: float) -> dict[str, Any]:
    """Return what ``count`` hosts cost the daemon alone, without Ray: processor time, time in the queue, and
    memory.
    """
    fleet = Fleet(_AllNear(count, seconds), 64)
    await fleet.start()
    await seated(fleet, count)
    found = await _worked_off(folder, fleet, count, seconds, lambda: 0.0)
    kept = ("evaluations", "all_s", "daemon_cpu_ms", "most_waiting", "daemon_peak_mib", "load")
    return {"hosts_without_ray": count, **{name: found[name] for name in kept}}


# Faults that are caused during a run.


async def killed(there: Nodes, fleet: Fleet) -> None:
    """Kill one node during the run."""
    await asyncio.to_thread(there.kill, "h0")


async def frozen(there: Nodes, fleet: Fleet) -> None:
    """Stop the processes of one node for 60 s."""
    there.signal("h0", signal.SIGSTOP)
    try:
        await asyncio.sleep(60)
    finally:
        there.signal("h0", signal.SIGCONT)


async def cut_off(there: Nodes, fleet: Fleet) -> None:
    """Make one node unreachable until Ray gives it up; then let it return under the same name."""
    processes = there.processes("h0")
    os.kill(
        processes[0], signal.SIGSTOP
    )  # stops the raylet only: the host's evaluations go on, but their results do not arrive
    await asyncio.sleep(60)
    os.kill(processes[0], signal.SIGCONT)
    await asyncio.to_thread(there.kill, "h0")
    await asyncio.to_thread(there.add, "h0")


async def slow(there: Nodes, fleet: Fleet) -> None:
    """Make one node ten times as slow."""
    there.instruct("h0", delay_s=3.0)


async def wrong(there: Nodes, fleet: Fleet) -> None:
    """Make one node report every fourth kernel as wrong."""
    there.instruct("h0", wrong=" 1 0")


async def restarted(there: Nodes, fleet: Fleet) -> None:
    """Restart the head node, and then the other nodes, because the head keeps its state only in memory."""
    await asyncio.to_thread(there.restart)


async def clocks(there: Nodes, fleet: Fleet) -> None:
    """Make the clock rate of one node's device 20 % higher than that of the others."""
    there.instruct("h0", clock=1.2)


FAULTS: dict[str, Fault] = {
    "killed": killed,
    "frozen": frozen,
    "cut_off": cut_off,
    "slow": slow,
    "wrong": wrong,
    "restarted": restarted,
    "clocks": clocks,
}


async def disturbed(folder: Path, names: tuple[str, ...], fault: Fault | None, delay_s: float = 0.3) -> Decisions:
    """Return the decisions of a run during which ``fault`` happens (None: no fault). An evaluation takes
    ``delay_s`` seconds on average.
    """
    with nodes(folder, *names) as there:
        there.instruct("*", delay_s=delay_s)
        fleet = there.fleet(2)
        await fleet.start()
        await seated(fleet, len(names))
        if fault in (slow, wrong, clocks):
            assert fault is not None
            await fault(there, fleet)
        running = asyncio.create_task(decide(fleet, folder / "acceld.db"))
        if fault is not None and fault not in (slow, wrong, clocks):
            while sum(one["done"] for one in fleet.statistics()["hosts"]) < 3 and not running.done():  # type: ignore[attr-defined]  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            await fault(there, fleet)
        try:
            return await asyncio.wait_for(running, 300)
        finally:
            if os.environ.get("VERBOSE"):
                print(json.dumps(fleet.statistics()["hosts"]), file=sys.stderr)
            await fleet.stop(0.0)


def kill_daemons(folder: Path, kills: int, names: tuple[str, ...] = NAMES, seed: int = 0) -> Decisions:
    """Return the decisions of a run whose daemon is killed ``kills`` times. Fail if a row is stored twice."""
    rng, home, run = random.Random(seed), Home(folder / ".acceld"), 0
    with nodes(folder, *names) as there:
        environment = os.environ | {
            "XDG_RUNTIME_DIR": str(folder),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "FLEET_ADDRESS": there.address,
        }
        for life in range(kills + 1):
            daemon = start("tests.acceld.cluster.daemon", "--home", str(home.path), environment=environment)
            try:
                client = client_of(home)
                if not run:
                    asked = {"workload": "silu", "backend": "neuron_legacy", "search": SEARCH}
                    run = client.send("POST", "/v1/runs", asked)["id"]
                deadline = time.monotonic() + 120
                while not client.get("/v1/queue")["queue"]["slots"]:
                    _in_time(deadline)
                if life < kills:
                    time.sleep(rng.uniform(0.1, 0.8))
                    continue
                while client.get(f"/v1/runs/{run}")["state"] not in ("finished", "failed"):
                    _in_time(deadline)
                daemon.send_signal(signal.SIGTERM)
                daemon.communicate(timeout=60)
            finally:
                daemon.kill()
                daemon.communicate(timeout=30)

    async def read() -> Decisions:
        store = await asyncio.to_thread(Store.open, home.database)
        try:
            twice = "SELECT key FROM evaluations GROUP BY key HAVING count(*) > 1"
            assert await store.read(lambda connection: connection.execute(twice).fetchall()) == []
            return await decisions_of(store, run)
        finally:
            await store.close()

    return asyncio.run(read())


def _in_time(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise DaemonError("the run did not end")
    time.sleep(0.1)


def main() -> int:
    """Measure the chosen parts; return 1 if a threshold is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", default="throughput,scheduled,daemon," + ",".join(FAULTS), help="names, separated by commas"
    )
    parser.add_argument("--nodes", default="1,2,4,8", help="numbers of nodes for throughput")
    parser.add_argument("--hosts", default="8,100", help="numbers of hosts for scheduled, which goes without Ray")
    parser.add_argument("--seconds", type=float, default=5.0, help="of an evaluation, for throughput")
    parser.add_argument("--kills", type=int, default=20, help="of the daemon")
    arguments = parser.parse_args()
    chosen, missed = set(arguments.only.split(",")), False
    with tempfile.TemporaryDirectory(prefix="acceld-fleet-") as name:
        folder = Path(name)

        def place(what: str) -> Path:
            made = folder / what
            made.mkdir()
            return made

        for count in map(int, arguments.nodes.split(",")) if "throughput" in chosen else ():
            found = asyncio.run(throughput(place(f"t{count}"), count, arguments.seconds))
            missed |= found["share_of_ideal"] < LEAST_SHARE or found["daemon_cpu_ms"] > MOST_CPU_MS
            print(json.dumps(found), flush=True)
        for count in map(int, arguments.hosts.split(",")) if "scheduled" in chosen else ():
            print(json.dumps(asyncio.run(scheduled(place(f"s{count}"), count, arguments.seconds))), flush=True)
        if chosen - {"throughput", "scheduled"}:
            expected = asyncio.run(disturbed(place("undisturbed"), NAMES, None))
        for what, fault in FAULTS.items():
            if what in chosen:
                began = time.monotonic()
                try:
                    same = asyncio.run(disturbed(place(what), NAMES, fault)) == expected
                except TimeoutError:
                    same = False
                missed |= not same
                print(json.dumps({"fault": what, "same": same, "s": round(time.monotonic() - began, 1)}), flush=True)
        if "daemon" in chosen:
            same = kill_daemons(place("daemon"), arguments.kills) == expected
            missed |= not same
            print(json.dumps({"fault": "daemon", "kills": arguments.kills, "same": same}), flush=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
