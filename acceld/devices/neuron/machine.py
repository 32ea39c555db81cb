"""Combine the parts of a Neuron machine: toolchain, jailed compiler, cores, and runners on the cores."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from acceld.devices.neuron.proving import REPORT, JailName, prove, widened
from acceld.devices.neuron.runtime import canary
from acceld.devices.neuron.runtime.cache import Compiled, NeffCache
from acceld.devices.neuron.runtime.compiler import CompileJail, Exchange, NeuronCompiler, Versions
from acceld.devices.neuron.runtime.cores import Core, Isolation, check_cores, cores_of, read_devices
from acceld.devices.neuron.runtime.leases import CoreLeases, Lease, OnChange
from acceld.devices.neuron.runtime.requests import FLAGS, CompileRequest, Scalar, Tensor
from acceld.devices.neuron.runtime.runner import DeviceLostError, NeuronRunner, ProfilerError
from acceld.devices.neuron.runtime.timing import Clock, ProofError, Round
from acceld.devices.neuron.tools.detection import instance
from acceld.devices.neuron.tools.monitor import Monitor
from acceld.devices.neuron.tools.reports import NeuronDevice
from acceld.devices.neuron.tools.toolchain import Toolchain, find_toolchain
from acceld.errors import DeviceError
from acceld.evaluate.case import Failed
from acceld.model import Kernel
from acceld.targets import TARGETS


@dataclass(frozen=True, slots=True)
class Found:
    """The tools, logical cores and chip that were found on this machine."""

    tools: Toolchain
    cores: tuple[Core, ...]
    chip: str
    """Name of the chip; empty if the machine's firmware names no Trainium chip."""


async def find_machine(
    backend: str, *, compile_python: str = "", runner_python: str = "", wanted: Sequence[int] = ()
) -> Found:
    """Return the toolchain, cores and chip of this machine. ``wanted`` has the numbers of the cores to use; empty means
    all.

    Raise DeviceError if a part is missing; the error has the places that were searched, and the remedy. Raise
    DeviceError, too, if ``backend`` is not for this machine's chip.
    """
    (api,) = TARGETS[backend].apis
    tools = await asyncio.to_thread(find_toolchain, api, compile_python=compile_python, runner_python=runner_python)
    devices = await read_devices(tools.neuron_ls)
    cores = cores_of(devices, wanted)
    reported = (await asyncio.to_thread(instance))[:4]
    if not wanted:
        check_cores(devices, reported)
    chips = TARGETS[backend].chips[api]
    if reported.startswith("trn") and reported not in chips:
        raise DeviceError(
            f"backend {backend} does not run on this machine, which is a {reported}",
            hint=f"{backend} is for {' and '.join(chips)}; docs/trainium-sdks.md says which SDK is for which chip",
        )
    return Found(tools, cores, reported if reported in chips else "")


class Machine:
    """Compile and run kernels on one machine. Call :meth:`prove` first."""

    def __init__(
        self,
        backend: str,
        found: Found,
        exchanges: Mapping[CompileJail, Exchange],
        *,
        state_folder: Path,
        compile_jail: JailName = "auto",
        isolation: Isolation,
        build_s: float,
        on_change: OnChange | None = None,
    ) -> None:
        (self.api,) = TARGETS[backend].apis
        self.backend = backend
        self.tools = found.tools
        self.chip = found.chip or TARGETS[backend].chips[self.api][0]
        self.certain = bool(found.chip)
        self.compiler = NeuronCompiler(
            found.tools.compile_python,
            NeffCache(state_folder / "neuron" / "neff"),
            exchanges=exchanges,
            build_s=build_s,
        )
        self._state_folder, self._compile_jail = state_folder, compile_jail
        self.versions = Versions("", "", "")
        self.clock = Clock("", None)
        """The timing method of this machine; set by :meth:`prove`."""
        self.leases = CoreLeases(
            found.cores, isolation=isolation, devices=self._devices, canary=self._fails, on_change=on_change
        )
        self.monitor = Monitor(found.tools.neuron_monitor, self._memory_errors)
        self._lnc = found.cores[0].lnc

    async def _devices(self) -> Sequence[NeuronDevice]:
        return await read_devices(self.tools.neuron_ls)

    async def _memory_errors(self, chip: int, _: int) -> None:
        self.leases.doubt(chip)

    async def prove(self) -> None:
        """Show that this machine works: compile a known-good kernel in a jail, run it on a core, and time it.

        These steps also find the versions and the timing method. Raise DeviceError if one of these steps does not work,
        and ProfilerError if the profiler is at fault.
        """

        def request(versions: Versions) -> CompileRequest:
            self.versions = versions
            return self.request(canary.kernel(self.api, self._lnc), canary.INPUTS, {})

        async def accept(compiled: Compiled) -> str:
            async with self.leases.lease("canary") as lease:
                wrong = await canary.fails(lease.core, compiled, self._start_canary)
            return f"core {lease.core.id} {wrong}" if wrong else ""

        self.versions = await prove(
            self.compiler, request, accept, wanted=self._compile_jail, state_folder=self._state_folder
        )
        timed = await self._time_canary()
        self.clock = Clock(timed.method, timed.resolution_us)

    async def compile(self, request: CompileRequest) -> Compiled | Failed:
        """Return the kernel's NEFF, or the reason why the kernel does not compile. Raise DeviceError if the
        toolchain is at fault.
        """
        return await widened(self.compiler, request, wanted=self._compile_jail)

    def request(self, kernel: Kernel, arguments: Sequence[Tensor], scalars: dict[str, Scalar]) -> CompileRequest:
        """Return the request to compile a kernel for this machine."""
        return CompileRequest(
            kernel=kernel,
            arguments=tuple(arguments),
            target=self.chip,
            compiler_version=self.versions.compiler,
            api_version=self.versions.nki,
            scalars=scalars,
            flags=FLAGS[self.api],
        )

    async def _canary(self) -> Compiled:
        request = self.request(canary.kernel(self.api, self._lnc), canary.INPUTS, {})
        compiled = await self.compiler.compile(request)
        if isinstance(compiled, Failed):
            raise DeviceError(f"a known-good kernel no longer compiles here: {compiled.failure.message}", hint=REPORT)
        return compiled

    async def _start_canary(self, core: Core, folder: Path) -> NeuronRunner:
        return await self.start(core, folder, self._lnc)

    async def _fails(self, core: Core) -> str:
        return await canary.fails(core, await self._canary(), self._start_canary)

    async def proves_time(self) -> bool:
        """Tell whether a known-good kernel can be timed with proof that the device ran.

        False means that the profiler or the runtime is at fault. Raise ProfilerError if the profiler reports a failure
        of its own.
        """
        try:
            await self._time_canary()
        except (DeviceLostError, ProofError):
            return False
        return True

    async def _time_canary(self) -> Round:
        """Return one round of timed executions of the canary, a known-good kernel.

        Raise ProfilerError if the profiler failed, ProofError if nothing proves that the device ran, and
        DeviceLostError if the canary failed or the runner was lost.
        """
        compiled, fault = await self._canary(), None
        async with self.leases.lease("canary", timing=True) as lease, self.runner(lease, self._lnc) as runner:
            bad = await runner.load(compiled, canary.INPUTS, canary.OUTPUTS)
            ran = bad or await runner.run(canary.inputs(), deadline_s=canary.DEADLINE_S)
            try:
                timed = ran if isinstance(ran, Failed) else await runner.round(self.chip, deadline_s=canary.DEADLINE_S)
            except ProfilerError as error:
                fault = error
        if fault is not None:
            raise fault
        if isinstance(timed, Failed):
            raise DeviceLostError(
                f"a known-good kernel can not be timed: {timed.failure.message}",
                hint="acceld doctor --neuron tries each step on this machine",
            )
        return timed

    async def start(self, core: Core, folder: Path, lnc: int) -> NeuronRunner:
        """Return a runner on a core, which uses the first ``lnc`` physical cores of the logical core ``core``."""
        return await NeuronRunner.start(
            self.tools.runner_python,
            core=core.id * core.lnc // lnc,
            folder=folder,
            lnc=lnc,
            profiler=self.tools.profiler,
        )

    @asynccontextmanager
    async def runner(self, lease: Lease, lnc: int) -> AsyncIterator[NeuronRunner]:
        """Yield a runner on a leased core. If the runner ends uncleanly, a known-good kernel has to pass on the core
        before its next lease.

        Raise DeviceError if the kernel needs more physical cores (``lnc``) than the leased logical core has.
        """
        if lnc > lease.core.lnc:
            raise DeviceError(
                f"the kernel needs {lnc} physical cores in one logical core, but this machine has {lease.core.lnc}",
                hint="Set NEURON_LOGICAL_NC_CONFIG for the machine, or change the kernel's LNC.",
            )
        # the runtime's processes may still write to the folder while they end
        with tempfile.TemporaryDirectory(prefix="acceld-runner-", ignore_cleanup_errors=True) as folder:
            runner = await self.start(lease.core, Path(folder), lnc)
            lease.owns(runner.session)
            try:
                yield runner
            finally:
                if not await runner.close():
                    lease.ended_unclean()
