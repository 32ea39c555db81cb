"""Run work on a leased core. If the core is lost while the work runs, the work is repeated on another core."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import numpy as np

from acceld.config import EvaluateConfig
from acceld.devices.neuron.case import Build, NeuronCase
from acceld.devices.neuron.machine import Machine
from acceld.devices.neuron.runtime.requests import Tensor
from acceld.devices.neuron.runtime.runner import DeviceLostError, NeuronRunner, ProfilerError
from acceld.devices.neuron.runtime.timing import ProofError
from acceld.errors import DeviceError
from acceld.evaluate.case import Failed
from acceld.evaluate.correctness import datasets
from acceld.evaluate.correctness.datasets import DataSet
from acceld.model import Failure, Status

TRIES = 3
"""Number of cores on which a kernel is tried if each time the runner or the device is lost."""
_OTHER_KERNEL = "try another kernel; acceld doctor --neuron tries each step on this machine"
CHECK_S = 60.0
"""Deadline in seconds of one load or one execution, unless ``evaluate.check_s`` is set.

The deadline is this long because the first load also starts the runtime.
"""
RECOVER_S = 300.0
"""Least number of seconds between two tests of the cores that are out of service. A core that passes the test is back
in service.
"""
T = TypeVar("T")


class Bench:
    """Lease cores for kernels, and repeat the work on another core if a core is lost."""

    def __init__(self, machine: Machine, config: EvaluateConfig) -> None:
        self._machine = machine
        self.check_s = config.check_s or CHECK_S
        self.time_s = config.time_s
        self._recovered = time.monotonic()

    async def on_core(
        self, case: NeuronCase, *, timing: bool, work: Callable[[NeuronRunner], Awaitable[T]]
    ) -> T | Failed:
        """Return the result of ``work``, called with a runner on a leased core, or a failure if the kernel is at fault.

        If the core is lost, ``work`` is called again on another core, on at most TRIES cores. Raise ProfilerError if
        the profiler fails, and DeviceError if no core can be leased, or if no core can time even a known-good kernel.
        """
        machine, request = self._machine, case.request
        await self._recover()
        lost: list[int] = []
        run = f"r{request.run}" if request.run else "-"
        last: DeviceError
        while True:
            async with machine.leases.lease(run, timing=timing, candidate=case.identity, avoid=lost) as lease:
                try:
                    async with machine.runner(lease, request.kernel.lnc) as runner:
                        return await work(runner)
                except ProfilerError as error:
                    broken, last = True, error
                except (DeviceLostError, ProofError) as error:
                    lease.ended_unclean()
                    lost.append(lease.core.id)
                    broken, last = False, error
            if broken:
                raise last
            if (fault := machine.leases.device_fault(case.identity)) is not None:
                return fault
            if len(lost) == TRIES:
                break
        on = f"on cores {', '.join(map(str, lost))}, where known-good kernels do well: {last.message}"[:2000]
        if isinstance(last, ProofError):
            if not await machine.proves_time():
                raise last
            return Failed(
                Status.RUNTIME_ERROR, Failure("no_proof", f"the kernel can not be timed {on}", hint=_OTHER_KERNEL)
            )
        return Failed(
            Status.RUNTIME_ERROR,
            Failure("device_lost", f"the device was lost while the kernel ran {on}", hint=_OTHER_KERNEL),
        )

    async def _recover(self) -> None:
        """Run a known-good kernel on each core that is out of service, unless that was done less than RECOVER_S seconds
        ago.
        """
        if self._machine.leases.sick and time.monotonic() - self._recovered > RECOVER_S:
            self._recovered = time.monotonic()
            await self._machine.leases.check_again()

    async def load(self, case: NeuronCase, runner: NeuronRunner, slot: int, build: Build) -> Failed | None:
        """Load a compiled kernel (NEFF) of the case's workload into the runner's slot ``slot``.

        A runner keeps several NEFFs loaded, each in a slot. Return the failure; None if the NEFF is loaded.
        """
        asked, compiled = build
        outputs = [
            Tensor(f"output_{number}", one.dtype, one.kernel_shape) for number, one in enumerate(case.workload.outputs)
        ]
        return await runner.load(compiled, asked.arguments, outputs, slot=slot, deadline_s=self.check_s)


async def inputs_of(data: DataSet) -> tuple[bytes, ...]:
    """Return the arrays of a data set in the kernel's layout, as bytes in C order."""

    def read() -> tuple[bytes, ...]:
        return tuple(one.tobytes() for one in datasets.read_inputs(data.folder) if isinstance(one, np.ndarray))

    return await asyncio.to_thread(read)
