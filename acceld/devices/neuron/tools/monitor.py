"""Run neuron-monitor beside a backend, and read its output as records.

neuron-monitor reports two facts that the profiler and neuron-ls do not. One is the utilization of each core by any
program. The other is memory errors that could not be corrected, after which results of that chip can not be trusted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from acceld.devices.neuron.runtime.scripts.confine import end_with_parent
from acceld.devices.neuron.tools.reports import is_number, json_of, walk
from acceld.errors import DeviceError

PERCENTILES = ("p0", "p1", "p25", "p50", "p75", "p99", "p100")
LINE_BYTES = 16 << 20
"""Longest line that is read. It has room for the report of the largest instance with all its models."""
OnErrors = Callable[[int, int], Awaitable[object]]
"""A function that is called with a chip and the number of its new memory errors that could not be corrected."""


@dataclass(frozen=True, slots=True)
class MonitorReport:
    """One report of neuron-monitor: sums over all processes that use the chips, including processes of other
    programs.
    """

    utilization_percent: Mapping[int, float]
    """Utilization of each logical core, 0-100."""
    physical_utilization_percent: Mapping[str, float]
    """Utilization of each physical core, 0-100, by names such as ``0/nc_v3.1``; empty if LNC is 1."""
    flops: Mapping[int, float]
    """Floating-point operations of each logical core in the period of the report."""
    period_s: float
    errors: Mapping[str, int]
    """Number of executions that ended badly, by kind of error: generic, numerical, transient, model, runtime, hardware.
    """
    executions: Mapping[str, int]
    """Number of executions by outcome: completed, completed_with_err, timed_out, ..."""
    latency_s: Mapping[str, float]
    """Percentiles of the latency in seconds, such as ``total_p50`` and ``device_p99``: the greatest of all
    processes.
    """
    host_bytes: int
    device_bytes: int
    ecc_corrected: Mapping[int, int]
    """Corrected memory errors of each chip since the driver was loaded."""
    ecc_uncorrected: Mapping[int, int]
    instance: str
    device_type: str
    core_version: str
    logical_core_size: int
    """Physical cores of a logical one; 1 if not reported."""

    def plain(self) -> dict[str, Any]:
        """Return the record as data for JSON."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in values}


def parse_monitor(line: str) -> MonitorReport:
    """Return one line of ``neuron-monitor`` as a record. Missing fields are empty. Raise DeviceError if the
    line is invalid.
    """
    raw = json_of(line, "neuron-monitor", lambda one: isinstance(one, dict))
    if not isinstance(raw, dict):
        raise DeviceError(
            "neuron-monitor printed a line that is not a JSON object",
            hint="update acceld or the Neuron tools: docs/trainium-sdks.md has the versions that fit",
        )
    try:
        return _report(raw)
    except (AttributeError, TypeError, ValueError) as error:
        raise DeviceError(
            f"neuron-monitor printed a report acceld does not understand: {error!r}",
            hint="update acceld or the Neuron tools: docs/trainium-sdks.md has the versions that fit",
        ) from error


def _report(raw: dict[str, Any]) -> MonitorReport:
    used: dict[int, float] = {}
    physical: dict[str, float] = {}
    flops: dict[int, float] = {}
    errors: dict[str, int] = {}
    executions: dict[str, int] = {}
    latency_s: dict[str, float] = {}
    memory = {"host": 0, "neuron_device": 0}
    period_s = 0.0
    for runtime in raw.get("neuron_runtime_data") or ():
        report = runtime.get("report") or {}
        period_s = max(period_s, float(walk(report, "neuroncore_counters", "period") or 0.0))
        for name, figures in (walk(report, "neuroncore_counters", "neuroncores_in_use") or {}).items():
            core = int(name)
            used[core] = used.get(core, 0.0) + _percent(figures)
            flops[core] = flops.get(core, 0.0) + float(figures.get("flops") or 0.0)
            for part, inner in (figures.get("v3d") or {}).items():
                key = f"{core}/{part}"
                physical[key] = physical.get(key, 0.0) + _percent(inner)
        stats = report.get("execution_stats") or {}
        _add(errors, stats.get("error_summary"))
        _add(executions, stats.get("execution_summary"))
        for clock in ("total", "device"):
            for percentile, reported in (walk(stats, "latency_stats", f"{clock}_latency") or {}).items():
                if percentile in PERCENTILES and is_number(reported):
                    key = f"{clock}_{percentile}"
                    latency_s[key] = max(latency_s.get(key, 0.0), float(reported))
        _add(memory, {n: walk(report, "memory_used", "neuron_runtime_used_bytes", n) for n in memory})
    chips = walk(raw, "system_data", "neuron_hw_counters", "neuron_devices") or ()
    corrected, uncorrected = (
        _ecc(chips, "mem_ecc_corrected"),
        _ecc(chips, "mem_ecc_uncorrected", "sram_ecc_uncorrected"),
    )
    hardware = raw.get("neuron_hardware_info") or {}
    return MonitorReport(
        utilization_percent=MappingProxyType(used),
        physical_utilization_percent=MappingProxyType(physical),
        flops=MappingProxyType(flops),
        period_s=period_s,
        errors=MappingProxyType(errors),
        executions=MappingProxyType(executions),
        latency_s=MappingProxyType(latency_s),
        host_bytes=memory["host"],
        device_bytes=memory["neuron_device"],
        ecc_corrected=MappingProxyType(corrected),
        ecc_uncorrected=MappingProxyType(uncorrected),
        instance=str(walk(raw, "instance_info", "instance_type") or ""),
        device_type=str(hardware.get("neuron_device_type") or ""),
        core_version=str(hardware.get("neuroncore_version") or ""),
        logical_core_size=int(hardware.get("logical_neuroncore_config") or 1),
    )


def _percent(figures: Mapping[str, Any]) -> float:
    return float(figures.get("neuroncore_utilization") or 0.0)


def _add(sums: dict[str, int], reported: Any) -> None:
    for name, number in (reported or {}).items():
        sums[name] = sums.get(name, 0) + int(number or 0)


def _ecc(chips: Any, *counters: str) -> dict[int, int]:
    return {int(chip["neuron_device_index"]): sum(int(chip.get(one) or 0) for one in counters) for chip in chips}


class Monitor:
    """Run neuron-monitor as a child process that ends with the backend.

    If the program is missing or fails, there are no reports, and no error is raised.
    """

    def __init__(self, program: str, on_errors: OnErrors, environment: Mapping[str, str] | None = None) -> None:
        """Prepare the monitor. ``on_errors`` is called whenever a chip has new memory errors that could not be
        corrected.
        """
        self._program = program
        self._on_errors = on_errors
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self.last: MonitorReport | None = None
        """The latest report; None before the first report, and if neuron-monitor is missing."""

    async def start(self) -> None:
        """Start neuron-monitor, and begin to read its reports."""
        me = os.getpid()
        with contextlib.suppress(OSError):  # neuron-monitor may be missing; the machine then works without its reports
            self._process = await asyncio.create_subprocess_exec(
                self._program,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=self._environment,
                limit=LINE_BYTES,
                preexec_fn=lambda: end_with_parent(me),
            )
            self._reading = asyncio.create_task(self._read(self._process))

    async def stop(self) -> None:
        """End neuron-monitor."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._process is not None:
            await self._process.wait()
        self._process, self._reading, self.last = None, None, None

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            try:
                report = parse_monitor(line.decode(errors="replace"))
            except DeviceError:
                continue  # this line is no report; the next line may be a report
            before, self.last = self.last, report
            for chip, count in report.ecc_uncorrected.items():
                more = count - before.ecc_uncorrected.get(chip, 0) if before is not None else 0
                if more > 0:
                    await self._on_errors(chip, more)
        self.last = None
