"""List the logical cores, and the groups of cores that must be idle while a core of the group is timed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from acceld.chips import CHIPS
from acceld.config import settings_file
from acceld.devices.neuron.tools.detection import INSTALL
from acceld.devices.neuron.tools.reports import NeuronDevice, NeuronProcess, parse_neuron_ls
from acceld.errors import DeviceError

_LS_S = 30.0


class Isolation(StrEnum):
    """The kinds of groups of cores that have to be idle while a core of the group is timed."""

    CORE = "core"
    """The timed core alone, if cores do not disturb each other."""
    PAIR = "pair"
    """The two physical cores that share an HBM stack."""
    CHIP = "chip"
    """All cores of the chip."""


@dataclass(frozen=True, slots=True)
class Core:
    """A logical core.

    ``id`` is the core's number on the machine, ``device`` the number of its chip, ``position`` the core's number on
    that chip, from 0, and ``lnc`` the number of its physical cores.
    """

    id: int
    device: int
    position: int
    lnc: int

    def group(self, isolation: Isolation) -> str:
        """Return the name of the isolation group that contains the core."""
        if isolation is Isolation.CHIP:
            return f"chip{self.device}"
        if isolation is Isolation.PAIR:
            return f"chip{self.device}.pair{self.position * self.lnc // 2}"
        return f"core{self.id}"


async def read_devices(
    program: str = "neuron-ls", environment: Mapping[str, str] | None = None
) -> Sequence[NeuronDevice]:
    """Return the devices that ``neuron-ls --json-output`` reports.

    Raise DeviceError if the program is missing, fails, or prints no valid list of devices.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            "--json-output",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )
    except OSError as error:
        raise DeviceError(f"{program} can not be started: {error}", hint=INSTALL) from error
    try:
        async with asyncio.timeout(_LS_S):
            out, reported = await process.communicate()
    except TimeoutError:
        raise DeviceError(
            f"{program} did not answer within {_LS_S:g} s", hint="Check that the driver is loaded: lsmod | grep neuron"
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise DeviceError(
            f"{program} failed: {(out + reported).decode(errors='replace')[-600:].strip()}",
            hint="check that the driver is loaded: lsmod | grep neuron",
        )
    return parse_neuron_ls(f"{out.decode(errors='replace')}\n{reported.decode(errors='replace')}")


def cores_of(devices: Sequence[NeuronDevice], wanted: Iterable[int] = ()) -> tuple[Core, ...]:
    """Return the logical cores with the numbers ``wanted``; all of them if ``wanted`` is empty.

    If neuron-ls gives no ids, or the same ids for several devices, cores are numbered in the order of the
    devices. Raise DeviceError for a number without a core.
    """
    reported = [core for device in devices for core in device.core_ids]
    through = len(set(reported)) != len(reported)
    found: list[Core] = []
    for device in sorted(devices, key=lambda one: one.index):
        for position, reported_id in enumerate(device.core_ids):
            number = len(found) if through else reported_id
            found.append(Core(number, device.index, position, device.logical_core_size))
    chosen = set(wanted)
    if missing := chosen - {core.id for core in found}:
        raise DeviceError(
            f"there is no core {min(missing)}; neuron-ls lists {[core.id for core in found]}",
            hint=f"devices.cores in {settings_file()} names logical cores",
        )
    return tuple(core for core in found if not chosen or core.id in chosen)


def check_cores(devices: Sequence[NeuronDevice], chip: str) -> None:
    """Raise DeviceError if the reports of neuron-ls contradict each other or the chip's figures. The error names the
    figures.

    There has to be one core id for each logical core. The number of logical cores times LNC has to be the number of
    the chip's physical cores.
    """
    physical = CHIPS[chip].cores_per_chip if chip in CHIPS else 0
    for device in devices:
        logical, lnc, where = (
            device.core_count,
            device.logical_core_size,
            f"neuron-ls reports for chip {device.index}, ",
        )
        if len(device.core_ids) != logical:
            raise DeviceError(
                f"{where}nc_count {logical} and {len(device.core_ids)} core ids: {list(device.core_ids)}, which contradict "
                "each other",
                hint=f"Name the logical cores to use: devices.cores in {settings_file()}",
            )
        if physical and logical * lnc != physical:
            raise DeviceError(
                f"{where}{logical} logical cores of {lnc} physical cores each, which makes {logical * lnc}; "
                f"a {chip} has {physical}",
                hint="does NEURON_LOGICAL_NC_CONFIG differ from the driver's setting? To continue nevertheless, name the logical "
                f"cores to use: devices.cores in {settings_file()}",
            )


def foreign_processes(devices: Sequence[NeuronDevice], own_sessions: Iterable[int]) -> Mapping[int, NeuronProcess]:
    """Return, for each device that another program uses, one process of that program.

    Processes of the sessions ``own_sessions`` belong to acceld. neuron-ls names no cores, so a process counts as using
    all cores of its device.
    """
    ours = set(own_sessions)
    return {
        device.index: process
        for device in devices
        for process in device.processes
        if _session_of(process.pid) not in ours
    }


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return -1
