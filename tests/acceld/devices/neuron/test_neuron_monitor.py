"""neuron-monitor's documented lines become records, and each memory error is reported once."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from acceld.devices.neuron.tools.monitor import Monitor, parse_monitor
from acceld.errors import DeviceError
from tests.standin_neuron.machine import tool

STANDIN = Path(__file__).resolve().parents[3] / "standin_neuron"
RUNTIME = {
    "pid": 1,
    "report": {
        "neuroncore_counters": {
            "period": 1.0,
            "neuroncores_in_use": {
                "0": {
                    "neuroncore_utilization": 42.0,
                    "flops": 1e12,
                    "v3d": {"nc_v3.0": {"neuroncore_utilization": 21.0}, "nc_v3.1": {"neuroncore_utilization": 63.0}},
                }
            },
        },
        "execution_stats": {
            "error_summary": {"numerical": 1, "hardware": 0},
            "execution_summary": {"completed": 123, "timed_out": 1},
            "latency_stats": {"total_latency": {"p50": 0.011, "p100": 0.02}, "device_latency": {"p50": 0.010}},
        },
        "memory_used": {"neuron_runtime_used_bytes": {"host": 100, "neuron_device": 200, "usage_breakdown": {}}},
    },
}
CHIP = {"neuron_device_index": 3, "mem_ecc_corrected": 7, "mem_ecc_uncorrected": 2, "sram_ecc_uncorrected": 1}
LINE = {
    "neuron_runtime_data": [RUNTIME, RUNTIME],
    "system_data": {"neuron_hw_counters": {"neuron_devices": [CHIP]}},
    "instance_info": {"instance_type": "trn2n.48xlarge"},
    "neuron_hardware_info": {
        "neuron_device_type": "trainium2",
        "neuroncore_version": "v3d",
        "logical_neuroncore_config": 2,
    },
}


def test_runtimes_are_summed_and_memory_errors_counted_by_chip() -> None:
    report = parse_monitor(json.dumps(LINE))
    assert report.utilization_percent == {0: 84.0} and report.flops == {0: 2e12}
    assert report.physical_utilization_percent == {"0/nc_v3.0": 42.0, "0/nc_v3.1": 126.0}
    assert report.errors["numerical"] == 2 and report.executions == {"completed": 246, "timed_out": 2}
    assert report.latency_s == {"total_p50": 0.011, "total_p100": 0.02, "device_p50": 0.010}
    assert (report.host_bytes, report.device_bytes, report.period_s) == (200, 400, 1.0)
    assert (report.ecc_corrected, report.ecc_uncorrected) == ({3: 7}, {3: 3})
    assert (report.instance, report.device_type, report.core_version) == ("trn2n.48xlarge", "trainium2", "v3d")
    assert report.logical_core_size == 2
    assert json.loads(json.dumps(report.plain()))["ecc_uncorrected"] == {"3": 3}


def test_what_is_left_out_is_empty() -> None:
    report = parse_monitor("{}")
    assert (report.utilization_percent, report.errors, report.logical_core_size) == ({}, {}, 1)


@pytest.mark.parametrize(
    "line",
    ["", "[]", '{"neuron_runtime_data": [1]}', '{"neuron_runtime_data": [{"report": {"execution_stats": [1]}}]}'],
)
def test_what_is_no_report_is_a_device_error(line: str) -> None:
    with pytest.raises(DeviceError):
        parse_monitor(line)


async def test_the_program_is_listened_to_and_each_rise_of_memory_errors_is_reported_once(tmp_path: Path) -> None:
    program = tool(tmp_path, "neuron-monitor")
    reported: list[tuple[int, int]] = []
    heard = asyncio.Event()

    async def on_errors(chip: int, more: int) -> None:
        reported.append((chip, more))
        heard.set()

    monitor = Monitor(program, on_errors, {"ACCELD_STANDIN": "1", "STANDIN_STATE": str(tmp_path)})
    await monitor.start()
    try:
        async with asyncio.timeout(300):
            while monitor.last is None:  # noqa: ASYNC110  it has no event for this
                await asyncio.sleep(0.01)
            assert monitor.last.utilization_percent == {0: 42.0} and not reported
            (tmp_path / "partial").write_text('{"mem_ecc_uncorrected": 2}')
            (tmp_path / "partial").rename(tmp_path / "monitor.json")
            await heard.wait()
            await asyncio.sleep(0.3)
        assert reported == [(0, 2)]
    finally:
        await monitor.stop()
    assert monitor.last is None


async def test_a_machine_without_the_program_is_no_error(tmp_path: Path) -> None:
    async def nobody(chip: int, more: int) -> None:
        raise AssertionError

    monitor = Monitor(str(tmp_path / "none"), nobody)
    await monitor.start()
    assert monitor.last is None
    await monitor.stop()
