"""Find cores that slow each other down: time one core while the others are idle, then while a neighbor of each kind is
busy.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from acceld.config import Config
from acceld.devices.neuron.builds import compile_request
from acceld.devices.neuron.case import Build
from acceld.devices.neuron.compile_jail import JailedExchange
from acceld.devices.neuron.learned import keep_isolation
from acceld.devices.neuron.machine import Machine, find_machine
from acceld.devices.neuron.runtime.cores import Core, Isolation
from acceld.devices.neuron.runtime.requests import Tensor
from acceld.devices.neuron.runtime.runner import NeuronRunner, size_of
from acceld.devices.neuron.runtime.timing import OTHER_SPREAD, SPREAD, Measurement
from acceld.errors import DeviceError
from acceld.evaluate.baselines import baseline_kernel
from acceld.evaluate.case import Failed
from acceld.evaluate.sandbox.jail import Level
from acceld.evaluate.sandbox.ladder import probe_level
from acceld.workloads import Workload, workload

WORKLOAD = "silu"
"""The workload whose kernel is timed. HBM limits it, so traffic of other cores shows in its latency."""
DEADLINE_S = 300.0
KINDS = {"the same HBM": Isolation.PAIR, "the same chip": Isolation.CHIP, "another chip": None}
"""The kinds of neighbors, nearest first. The value is the smallest isolation group that contains the core and a
neighbor of this kind.

Cores of two chips are never in one group.
"""


@dataclass(frozen=True, slots=True)
class Interference:
    """The result of a measurement: by kind of neighbor, the latency beside a busy neighbor divided by the quiet
    latency; and the isolation group to use.

    ``path`` is the file in which the result was stored.
    """

    slowdown: Mapping[str, float]
    isolation: Isolation
    path: Path

    def plain(self) -> dict[str, object]:
        """Return the record as data for JSON."""
        return {"slowdown": dict(self.slowdown), "isolation": self.isolation.value, "path": str(self.path)}


async def learn(backend: str, config: Config, state_folder: Path, name: str = WORKLOAD) -> Interference:
    """Measure which neighbors disturb a core, store the result, and return it.

    Raise DeviceError if the machine can not be used or has only one core.
    """
    devices = config.devices
    found = await find_machine(
        backend, compile_python=devices.compile_python, runner_python=devices.runner_python, wanted=devices.cores
    )
    if len(found.cores) < 2:
        raise DeviceError(
            "this machine has only one core, so there is no neighbor to measure",
            hint="use a machine with two or more cores; on this machine, nothing can interfere",
        )
    report = await probe_level()
    exchange = JailedExchange(report.level, report.cgroup_folder, memory_bytes=int(config.evaluate.memory_gib * 2**30))
    await exchange.start()
    try:
        machine = Machine(
            backend,
            found,
            exchange.exchanges(),
            state_folder=state_folder,
            compile_jail=devices.compile_jail if report.level >= Level.L1 else "off",
            isolation=Isolation.CHIP,
            build_s=DEADLINE_S,
        )
        await machine.prove()
        known = await asyncio.to_thread(workload, name, config.paths.workloads)
        kernel = await asyncio.to_thread(baseline_kernel, known, machine.api)
        request = await asyncio.to_thread(compile_request, machine.request, kernel, known)
        compiled = await machine.compile(request)
        if isinstance(compiled, Failed):
            raise DeviceError(
                f"the baseline of {name} does not compile here: {compiled.failure.message}",
                hint="acceld doctor --neuron tries the compiler",
            )
        slowdown = await _slowdowns(machine, found.cores, known, (request, compiled))
    finally:
        await exchange.stop()
    isolation = isolation_from(slowdown, machine.chip)
    path = await asyncio.to_thread(keep_isolation, state_folder, isolation, slowdown)
    return Interference(slowdown, isolation, path)


def isolation_from(slowdown: Mapping[str, float], chip: str) -> Isolation:
    """Return the isolation group: the widest group in which a busy neighbor changes latencies by more than the
    allowed spread.

    If no neighbor changes latencies by that much, return the group that has only the core itself.
    """
    limit = 1.0 + SPREAD.get(chip, OTHER_SPREAD)
    disturbing = [KINDS[kind] for kind, ratio in slowdown.items() if ratio > limit]
    if Isolation.CHIP in disturbing:
        return Isolation.CHIP
    return Isolation.PAIR if Isolation.PAIR in disturbing else Isolation.CORE


async def _slowdowns(machine: Machine, cores: Sequence[Core], known: Workload, build: Build) -> dict[str, float]:
    first = cores[0]
    async with _loaded(machine, first, known, build) as runner:
        quiet_us = await _latency_us(runner, machine.chip)
        found: dict[str, float] = {}
        for kind in KINDS:
            neighbor = next((core for core in cores[1:] if _kind(first, core) == kind), None)
            if neighbor is None:
                continue
            async with _loaded(machine, neighbor, known, build) as other:
                working = asyncio.create_task(_work(other))
                try:
                    found[kind] = await _latency_us(runner, machine.chip) / quiet_us
                finally:
                    working.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await working
    return found


def _kind(core: Core, other: Core) -> str:
    if core.group(Isolation.PAIR) == other.group(Isolation.PAIR):
        return "the same HBM"
    return "the same chip" if core.device == other.device else "another chip"


@asynccontextmanager
async def _loaded(machine: Machine, core: Core, known: Workload, build: Build) -> AsyncIterator[NeuronRunner]:
    """Yield a runner on a core, with the kernel loaded and run once. Raise DeviceError if starting, loading or running
    fails.
    """
    with tempfile.TemporaryDirectory(prefix="acceld-runner-", ignore_cleanup_errors=True) as folder:
        runner = await machine.start(core, Path(folder), core.lnc)
        try:
            outputs = [Tensor(f"output_{n}", one.dtype, one.kernel_shape) for n, one in enumerate(known.outputs)]
            bad = await runner.load(build[1], build[0].arguments, outputs)
            ran = bad or await runner.run(_inputs(build), deadline_s=DEADLINE_S)
            if isinstance(ran, Failed):
                raise DeviceError(
                    f"the kernel does not run on core {core.id}: {ran.failure.message}",
                    hint="acceld doctor --neuron tries each step on this machine",
                )
            yield runner
        finally:
            await runner.close()


def _inputs(build: Build) -> list[bytes]:
    """Return inputs of arbitrary values: the latencies of these kernels do not depend on them."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(size_of(one) // 4, np.float32).tobytes() for one in build[0].arguments]


async def _work(runner: NeuronRunner) -> None:
    """Run the kernel without end, to keep a core busy."""
    while True:
        await runner.time("", deadline_s=DEADLINE_S, max_rounds=1)


async def _latency_us(runner: NeuronRunner, chip: str) -> float:
    measured = await runner.time(chip, deadline_s=DEADLINE_S)
    if not isinstance(measured, Measurement):
        raise DeviceError(
            f"the kernel could not be timed: {measured.failure.message}",
            hint="acceld doctor --neuron tries each step on this machine",
        )
    return measured.latency_us
