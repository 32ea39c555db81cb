"""The output of Neuron's tools, as AWS documents it, becomes records; incomplete output is an error."""

from __future__ import annotations

import json

import pytest

from acceld.devices.neuron.tools.reports import (
    compile_failure,
    nrt_code,
    parse_neuron_ls,
    parse_summary,
    runtime_failure,
)
from acceld.errors import DeviceError
from acceld.model import Status

LS_TRN2 = [
    {
        "neuron_device": 0,
        "bdf": "cc:00.0",
        "cpu_affinity": "48-95,144-191",
        "numa_node": "1",
        "connected_to": [12, 3, 4, 1],
        "nc_count": 4,
        "logical_neuroncore_config": 2,
        "memory_size": 103079215104,
        "neuroncore_ids": [0, 1, 2, 3],
        "neuron_processes": [{"pid": 113985, "command": "neuron-bench exec", "neuron_runtime_version": "2.0.0"}],
    }
]


def test_neuron_ls_tells_cores_lnc_and_holders() -> None:
    (device,) = parse_neuron_ls(json.dumps(LS_TRN2))
    assert (device.core_count, device.core_ids, device.logical_core_size) == (4, (0, 1, 2, 3), 2)
    assert device.processes[0].pid == 113985 and device.memory_bytes == 103079215104


def test_neuron_ls_of_trn1_has_no_lnc_and_may_have_no_processes() -> None:
    (device,) = parse_neuron_ls('[{"neuron_device": 1, "nc_count": 2, "memory_size": 34359738368}]')
    assert (device.core_ids, device.logical_core_size, device.processes) == ((0, 1), 1, ())


@pytest.mark.parametrize("text", ["", "not json", "{}", '[{"nc_count": 2}]', '[{"neuron_device": "x"}]'])
def test_what_is_not_neuron_ls_is_a_device_error(text: str) -> None:
    with pytest.raises(DeviceError):
        parse_neuron_ls(text)


def test_a_summary_keeps_units_and_leaves_out_what_is_not_there() -> None:
    summary = {
        "total_time": 0.001333232,
        "hbm_read_bytes": 117440512,
        "scalar_engine_active_time_percent": 0.3148,
        "vector_engine_active_time": 0.000985,
        "dma_active_time": 0.0009,
        "throttle_avg_util_limit_nc0_percent": 0.586,
        "throttle_active_nc0_time_ns": 1200,
        "dma_queue_count": 118,
        "instance_type": "trn1.32xlarge",
        "driver_version": "2.30.2.0",
    }
    parsed = parse_summary("INFO: reading\n" + json.dumps({"n_1a2b": summary}))
    assert parsed.total_us == pytest.approx(1333.232)
    assert parsed.engines_us["vector"] == pytest.approx(985.0) and parsed.engines_us["dma"] == pytest.approx(900.0)
    assert parsed.engines_us["scalar"] == pytest.approx(0.3148 * 1333.232)
    assert "hardware_flops" not in parsed.counters and parsed.counters["hbm_read_bytes"] == 117440512
    assert parsed.throttled_percent == pytest.approx(58.6) and parsed.device_ran
    assert set(parsed.throttle) == {"throttle_avg_util_limit_nc0_percent", "throttle_active_nc0_time_ns"}
    assert set(parsed.fields) == {name for name, reported in summary.items() if not isinstance(reported, str)}
    assert parsed.versions == {"instance_type": "trn1.32xlarge", "driver_version": "2.30.2.0"}


def test_a_summary_without_activity_proves_nothing() -> None:
    assert not parse_summary('{"n": {"total_time": 0.001}}').device_ran


@pytest.mark.parametrize("text", ["{}", '{"n": {}}', '{"n": {"total_time": null}}', '{"n": {"total_ti'])
def test_a_truncated_summary_is_a_device_error(text: str) -> None:
    with pytest.raises(DeviceError):
        parse_summary(text)


@pytest.mark.parametrize(
    ("text", "status", "rule"),
    [
        ("NRT Error NRT_EXEC_OOB(1006): Failed to execute model", Status.RUNTIME_ERROR, "out_of_bounds"),
        ("NRT Error NRT_EXEC_COMPLETED_WITH_NUM_ERR(1003)", Status.INCORRECT_NUMERICAL, "not_finite"),
        ("Error notifications found on NC 0. INFER_ERROR_SUBTYPE_NUMERICAL", Status.INCORRECT_NUMERICAL, "not_finite"),
        ("TDRV:exec_request_process_errors [ND 1][NC 0] execution timeout (30000 ms)", Status.TIMEOUT, "deadline"),
    ],
)
def test_a_kernel_is_blamed_for_what_it_did(text: str, status: Status, rule: str) -> None:
    result = runtime_failure(text)
    assert result is not None and result[0] is status and result[1].rule == rule


def test_a_busy_or_broken_core_is_not_the_kernels_fault() -> None:
    assert runtime_failure("NRT Error NRT_EXEC_NC_BUSY(1005)") is None
    assert nrt_code("NRT Error NRT_EXEC_NC_BUSY(1005)") == 1005
    log = "ERROR NRT:nrt_allocate_neuron_cores NeuronCore(s) not available - Requested:nc1-nc1 Available:0"
    assert nrt_code(log) == 1005 and runtime_failure(log) is None
    assert all(
        runtime_failure(f"NRT Error NRT_X({code}): Failed") is None for code in (15, 101, 1100, *range(1200, 1207))
    )
    assert runtime_failure("NRT_EXEC_HW_ERR(6)") is None and runtime_failure("segmentation fault") is None


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("number of partitions 256 exceed architecture limitation of 128", "partition_limit"),
        ("Out-of-bound access for tensor `x` on dimension 1: index range [0, 4095] exceed", "out_of_bounds"),
        ("[GCA035] Instruction: I-21-0 with opcode: TensorTensor couldn't be allocated in SB", "sbuf_capacity"),
        ("Unexpected output dependencies, missing indices in the dst access: i", "output_dependency"),
        ("NCC_EVRF052: fp8 type is not supported by the target", "dtype"),
        ("NCC_EVRF059: kernel artefact file missing", "custom_call"),
        ("[NKI005] x: DRAM location of kind Internal mapping failed", "hbm_capacity"),
        ("AssertionError: tensor_tensor data1 partition dimension 256 exceeds maximum 128", "partition_limit"),
        ("NCC_EVRF066: LNC of kernel and compiler differ", "lnc"),
        ("something nobody documented", "compiler"),
    ],
)
def test_compile_errors_have_the_simulators_classes_and_the_kernels_line(text: str, rule: str) -> None:
    log = f'Traceback:\n  File "/x/neuronxcc/a.py", line 7\n  File "/tmp/job/kernel.py", line 42, in kernel\n{text}\n'
    failure = compile_failure(log, "kernel.py")
    assert (failure.rule, failure.line) == (rule, 42) and text[:40] in failure.message
