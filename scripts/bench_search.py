"""Measure how well a search overlaps calls of models with evaluations, by comparing its time with two schedules
of the same delays.

    python scripts/bench_search.py [--iterations 3] [--scale 0.01] [--json]

A scripted model and a scripted device only wait. Their delays are lognormal, and drawn by the place of the work
in the search, so both schedules and the search have the same delays. All other parts are real: loop, roles,
prompts, ledger, budget, SQLite. The wall-clock time of each iteration is compared with

* ideal: greedy list scheduling of the delays on the same model slots and devices, with the same barrier between
  iterations. No program can be much faster.
* staged: the order of AccelOpt. All calls of the planner run together. Then, plan by plan, its kernels are sampled, and
  profiled one after the other on one device.

``--scale`` shortens all delays, but not the daemon's own work. So a small scale makes acceld look worse.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from acceld.daemon.ledger import StoreLedger
from acceld.evaluate.interface import EvaluationRequest
from acceld.llm.calls import Calls
from acceld.llm.client import Completion, CompletionRequest
from acceld.llm.limits import Limiter, Limits
from acceld.llm.pricing import Price
from acceld.llm.settings import ModelSettings
from acceld.model import (
    Check,
    Correctness,
    Evaluation,
    Gate,
    Kernel,
    Profile,
    Run,
    RunSpec,
    SearchParameters,
    Source,
    Status,
)
from acceld.model_calls import Usage
from acceld.proposers.interface import Problem, ProblemArgument
from acceld.proposers.llm.prompts import PromptLibrary
from acceld.proposers.llm.proposer import LLMProposer
from acceld.proposers.llm.roles import RoleTable
from acceld.resources import prompts_folder
from acceld.search.budget import Budget
from acceld.search.loop import Search, SearchParts
from acceld.store.changes.runs import create_run
from acceld.store.database import Store
from acceld.store.reads.records import load_plans

Place = tuple[int, ...]


@dataclass(frozen=True)
class Delays:
    """Distribution of the delays in seconds, before scaling: medians, and the standard deviation of their
    logarithms.
    """

    planner_s: float = 30.0
    executor_s: float = 45.0
    device_s: float = 12.0
    sigma: float = 0.5
    scale: float = 0.01
    seed: int = 7

    def draw(self, kind: str, place: Place) -> float:
        """Return the delay of one call or evaluation. The same arguments always give the same delay."""
        median = {"planner": self.planner_s, "executor": self.executor_s, "device": self.device_s}[kind]
        rng = random.Random(f"{self.seed} {kind} {place}")
        return self.scale * median * math.exp(rng.gauss(0.0, self.sigma))


@dataclass
class Clock:
    """Delays of a run, the place of the attempt that wrote each kernel, and the seconds in each strict gate."""

    delays: Delays
    places: dict[str, Place] = field(default_factory=dict)
    """Place of the attempt that wrote a kernel, by the kernel's text."""
    strict_s: dict[int, float] = field(default_factory=dict)
    """Seconds in the strict gate by iteration."""


@dataclass(frozen=True)
class Branch:
    """One plan of an iteration: the place of its planner call and those of its attempts, by which delays are
    drawn.
    """

    planner: Place
    attempts: tuple[Place, ...]


class DelayedModel:
    """Model that answers after a drawn delay. The text of each kernel is its place in the search."""

    def __init__(self, clock: Clock, slots: int) -> None:
        self.clock = clock
        self.limiter = Limiter(Limits(concurrency=slots))

    async def complete(self, request: CompletionRequest) -> Completion:
        tags = {name: int(value) for name, value in request.tags.items()}
        if request.role == "planner":
            place: Place = (tags["iteration"], tags["parent"], tags["index"])
        else:
            place = (tags["iteration"], tags["parent"], tags["plan"], tags["attempt"])
        async with self.limiter.slot(1000):
            await asyncio.sleep(self.clock.delays.draw(request.role, place))
        if request.role == "planner":
            text = f"Title: plan {place}\nClass: dma\nInsights: none\n\nDo {place}."
        else:
            kernel = f"def kernel(x):\n    return {place}\n"
            self.clock.places[kernel] = place
            text = f"```python\n{kernel}```\n"
        return Completion(text, request.model, Usage(6000, 4000, 0, 1500))

    async def close(self) -> None:
        return


class DelayedDevices:
    """Evaluator that answers after a drawn delay, on a number of devices. Every kernel passes, about as fast as
    its parent.
    """

    def __init__(self, clock: Clock, devices: int) -> None:
        self.clock = clock
        self.slots = asyncio.Semaphore(devices)
        self.evaluated = 0

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        place = self.clock.places.get(request.kernel.text, (0,))
        wait_s = self.clock.delays.draw("device", place)
        if request.gate is Gate.STRICT and place != (0,):
            self.clock.strict_s[place[0]] = self.clock.strict_s.get(place[0], 0.0) + wait_s
        async with self.slots:
            await asyncio.sleep(wait_s)
        self.evaluated += 1
        latency_us = 1000.0 * random.Random(f"latency {place}").uniform(0.9, 1.3) ** (1 if place != (0,) else 0)
        profile = Profile(Source.SIMULATED, "trn1", "nki_legacy", latency_us, "scripted", bound="DMA 86 %")
        return Evaluation(
            Status.PASSED,
            request.kernel.sha256,
            program_sha256=request.kernel.sha256,
            correctness=Correctness(request.gate, 1e-7, 2e-5, checks=(Check("own/seed 0", True),)),
            profile=profile,
        )

    async def start(self) -> None:
        return

    async def stop(self, grace_s: float) -> None:
        return

    def statistics(self) -> dict[str, object]:
        return {}


def ideal_s(clock: Clock, iterations: Mapping[int, list[Branch]], slots: int, devices: int) -> float:
    """Return the seconds of the ideal schedule: list scheduling of each iteration, followed by the strict gate
    of the iteration's best kernel.
    """
    return sum(
        list_schedule_s(clock.delays, branches, slots, devices) + clock.strict_s.get(iteration, 0.0)
        for iteration, branches in iterations.items()
    )


def list_schedule_s(delays: Delays, branches: list[Branch], slots: int, devices: int) -> float:
    """Return the seconds that an iteration takes if each free slot always begins the first call or evaluation
    that is ready.
    """
    free = {"model": slots, "device": devices}
    ready: dict[str, list[tuple[int, str, Place, Branch]]] = {"model": [], "device": []}
    running: list[tuple[float, int, str, Place, Branch]] = []
    now_s, count = 0.0, 0

    def offer(kind: str, place: Place, branch: Branch) -> None:
        nonlocal count
        count += 1
        heapq.heappush(ready["device" if kind == "device" else "model"], (count, kind, place, branch))

    for branch in branches:
        offer("planner", branch.planner, branch)
    while running or any(ready.values()):
        for lane, waiting in ready.items():
            while waiting and free[lane]:
                number, kind, place, branch = heapq.heappop(waiting)
                free[lane] -= 1
                heapq.heappush(running, (now_s + delays.draw(kind, place), number, kind, place, branch))
        now_s, _, kind, place, branch = heapq.heappop(running)
        free["device" if kind == "device" else "model"] += 1
        if kind == "planner":
            for attempt in branch.attempts:
                offer("executor", attempt, branch)
        elif kind == "executor":
            offer("device", place, branch)
    return now_s


def staged_s(clock: Clock, iterations: Mapping[int, list[Branch]], slots: int) -> float:
    """Return the seconds of AccelOpt's order: all planner calls; then, for each plan, all samples, and their
    profiles one by one.
    """
    draw, total_s = clock.delays.draw, 0.0
    for branches in iterations.values():
        free_at_s = [0.0] * slots
        for branch in branches:
            heapq.heapreplace(free_at_s, free_at_s[0] + draw("planner", branch.planner))
        total_s += max(free_at_s)
        for branch in branches:
            total_s += max(draw("executor", attempt) for attempt in branch.attempts)
            total_s += sum(draw("device", attempt) for attempt in branch.attempts)
    return total_s


async def one(folder: Path, parameters: SearchParameters, delays: Delays, slots: int, devices: int) -> dict[str, float]:
    """Run one search, and return its seconds and the seconds of both schedules."""
    store = await asyncio.to_thread(Store.open, folder / f"bench-{devices}.db")
    clock = Clock(delays)
    model, evaluator = DelayedModel(clock, slots), DelayedDevices(clock, devices)
    root = Kernel("def kernel(x):\n    return x\n" + "# padding\n" * 200, "nki_legacy", entry="kernel")
    spec = RunSpec("bench", search=parameters, proposer="llm", root=root, backend="neuron_legacy")
    run: Run = await store.change(create_run, spec)
    price = Price.of("0.15", "0.60")
    settings = ModelSettings("m", "scripted", base_url="http://127.0.0.1/", price=price, limits=Limits(slots))
    calls = Calls({"m": (settings, model)}, ledger=StoreLedger(store), purse=Budget(daemon_usd=100.0))
    proposer = LLMProposer(calls, RoleTable.single("m"), PromptLibrary([prompts_folder()]), plans=parameters.plans)
    problem = Problem(
        "bench",
        "a scripted workload",
        "def forward(x):\n    return x\n",
        (ProblemArgument("x", (4,), "float32"),),
        "trn1",
        "nki_legacy",
    )
    search = Search(run, SearchParts(store, evaluator, proposer, problem, root))
    cpu_s, started_s = time.process_time(), time.monotonic()
    baseline_s = delays.draw("device", (0,))
    await search.run()
    wall_s, cpu_s = time.monotonic() - started_s - baseline_s, time.process_time() - cpu_s
    written = await store.read(load_plans, run.id)
    await store.close()
    iterations: dict[int, list[Branch]] = {}
    for plan in written:
        attempts = tuple((plan.iteration, plan.parent, plan.id, number) for number in range(parameters.attempts))
        iterations.setdefault(plan.iteration, []).append(Branch((plan.iteration, plan.parent, plan.index), attempts))
    ideal = ideal_s(clock, iterations, slots, devices)
    staged = staged_s(clock, iterations, slots)
    return {
        "devices": devices,
        "candidates": evaluator.evaluated,
        "wall_s": wall_s,
        "ideal_s": ideal,
        "staged_s": staged,
        "over_ideal": wall_s / ideal,
        "faster_than_staged": staged / wall_s,
        "cpu_ms_per_candidate": 1000.0 * cpu_s / max(1, evaluator.evaluated),
    }


async def measure(arguments: argparse.Namespace) -> list[dict[str, float]]:
    """Measure a search with one device, and a search with four."""
    parameters = SearchParameters(
        beam_width=arguments.beam, plans=arguments.plans, iterations=arguments.iterations, patience=0
    )
    delays = Delays(scale=arguments.scale)
    with tempfile.TemporaryDirectory() as folder:
        return [await one(Path(folder), parameters, delays, arguments.slots, devices) for devices in arguments.devices]


def main() -> int:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--plans", type=int, default=8)
    parser.add_argument("--slots", type=int, default=16, help="model calls at the same time")
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--scale", type=float, default=0.02, help="real seconds per scripted second")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = asyncio.run(measure(arguments))
    if arguments.json:
        print(json.dumps({"version": 1, "rows": rows}))
        return 0
    print("devices  candidates  ours s  ideal s  staged s  ours/ideal  staged/ours  daemon CPU ms/candidate")
    for row in rows:
        print(
            f"{row['devices']:7.0f}  {row['candidates']:10.0f}  {row['wall_s']:6.2f}  {row['ideal_s']:7.2f}  "
            f"{row['staged_s']:8.2f}  {row['over_ideal']:10.3f}  {row['faster_than_staged']:11.2f}  "
            f"{row['cpu_ms_per_candidate']:23.1f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
