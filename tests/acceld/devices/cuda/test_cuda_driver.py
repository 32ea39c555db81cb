"""The GPU driver: its facts about machines, the kernels it refuses, and the replacement of torch."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from acceld.devices.cuda.blank_torch import BlankTorch, Tensor, tensor_of
from acceld.devices.cuda.driver import CudaDriver
from acceld.devices.cuda.gpus import GPUS, gpu_called
from acceld.devices.cuda.machine import FIELDS, installed, library_path, minor_numbers
from acceld.devices.cuda.policy import refused_triton
from acceld.errors import DeviceError
from acceld.evaluate.hosted.driver import BuildRefused, Lease
from acceld.model import Kernel
from acceld.targets import TARGETS
from acceld.workloads import find_workloads, workload
from acceld.workloads.records import ArraySpec

ROOT = Path(__file__).parents[4]
ROW = (
    "0, GPU-5f2c, NVIDIA H100 80GB HBM3, 9.0, 580.65.06, 81559, 1755, 1980, 2619, 0x0000000000000004, Enabled, Disabled"
)


def reported(text: str) -> Callable[[list[str]], str]:
    def ask(arguments: list[str]) -> str:
        if arguments == ["-q"]:
            return "GPU 00000000:04:00.0\n    GPU UUID : GPU-5f2c\n    Minor Number : 3\n"
        assert arguments == [f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
        return text

    return ask


def test_nvidia_smi_is_read_with_clocks_and_what_throttles_them() -> None:
    (gpu,) = installed(reported(ROW + "\n"))
    assert (gpu.name, gpu.capability, gpu.driver, gpu.mig) == ("NVIDIA H100 80GB HBM3", 90, "580.65.06", False)
    assert gpu.clocks == "SM 1755 of 1980 MHz, memory 2619 MHz, throttled 0x0000000000000004"


def test_fields_the_tool_does_not_know_are_unknown_not_zero() -> None:
    text = "0, GPU-1, NVIDIA L4, 8.9, 550.54, 23034, [N/A], 2040, [N/A], [N/A], [N/A], [N/A]"
    (gpu,) = installed(reported(text))
    assert gpu.sm_mhz is None and gpu.clocks == "SM ? of 2040 MHz, memory ? MHz"


@pytest.mark.parametrize(
    "unknown", [("mig.mode.current",), ("compute_cap", "uuid"), ("clocks_throttle_reasons.active",)]
)
def test_a_field_that_the_tool_refuses_is_left_out(unknown: tuple[str, ...]) -> None:
    values = dict(zip(FIELDS, [one.strip() for one in ROW.split(",")], strict=True))
    values["clocks_event_reasons.active"] = "0x0000000000000008"

    def ask(arguments: list[str]) -> str:
        asked = arguments[0].partition("=")[2].split(",")
        if refused := [one for one in asked if one in unknown]:
            raise DeviceError(f'nvidia-smi failed: Field "{refused[0]}" is not a valid field to query.')
        return ", ".join(values[one] for one in asked)

    (gpu,) = installed(ask)
    assert gpu.name == "NVIDIA H100 80GB HBM3" and gpu.sm_mhz == 1755
    assert gpu.throttled == (
        "0x0000000000000008" if "clocks_throttle_reasons.active" in unknown else "0x0000000000000004"
    )
    driver = CudaDriver(lambda arguments: ask(arguments) if arguments != ["-q"] else "")
    assert driver.settings("triton")["capability"] == 90, "known by the GPU's name"


def test_an_essential_field_and_other_failures_are_not_forgiven() -> None:
    def ask(arguments: list[str]) -> str:
        raise DeviceError('nvidia-smi failed: Field "name" is not a valid field to query.')

    with pytest.raises(DeviceError, match="not a valid field"):
        installed(ask)


def test_an_unknown_gpu_without_a_capability_is_named() -> None:
    row = ROW.replace("NVIDIA H100 80GB HBM3", "NVIDIA X1").replace("9.0", "[N/A]")
    with pytest.raises(DeviceError, match="compute capability of NVIDIA X1 is unknown") as caught:
        CudaDriver(reported(row)).check()
    assert caught.value.hint


@pytest.mark.parametrize("source", ["proc", "tool"])
def test_device_files_are_named_by_minor_numbers_and_not_by_indices(source: str, tmp_path: Path) -> None:
    if source == "proc":
        for folder, uuid, minor in (("0000:04:00.0", "GPU-5f2c", 3), ("0000:05:00.0", "GPU-6", 0)):
            (tmp_path / folder).mkdir()
            text = f"Model: \t\t NVIDIA H100\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n"
            (tmp_path / folder / "information").write_text(text)
        assert minor_numbers(reported(ROW), tmp_path) == {"GPU-5f2c": 3, "GPU-6": 0}
    else:
        assert minor_numbers(reported(ROW), tmp_path / "nothing") == {"GPU-5f2c": 3}


def test_a_worker_gets_the_device_file_of_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acceld.devices.cuda.driver.os.path.exists", lambda _: True)
    driver = CudaDriver(reported(ROW))
    driver.__dict__["minors"] = {"GPU-5f2c": 3}
    assert driver.running("triton", "/plan", driver.leases()[0]).device_paths[0] == "/dev/nvidia3"
    driver.__dict__["minors"] = {}
    assert driver.running("triton", "/plan", driver.leases()[0]).device_paths[0] == "/dev/nvidia0"


def test_the_drivers_library_is_found_where_the_parent_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", f":{tmp_path / 'missing'}:{tmp_path}")
    (tmp_path / "libcuda.so.1").touch()
    driver = CudaDriver(reported(ROW))
    assert driver.settings("triton")["library"] == str(tmp_path / "libcuda.so.1")
    assert driver.referring().libraries == (str(tmp_path / "libcuda.so.1"),)
    assert library_path([str(tmp_path / "missing")]) == "libcuda.so.1"


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("3.3.1", "Triton 3.3.1 is too old"),
        ("missing", "is too old"),
        ("3.4.0", "PyTorch is not"),
        ("3.10.0", "PyTorch is not"),
    ],
)
def test_old_triton_and_missing_torch_are_refused_before_a_run(
    version: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acceld.devices.cuda.driver.importlib.util.find_spec", lambda name: name == "triton" or None)
    monkeypatch.setattr("acceld.devices.cuda.driver.importlib.metadata.version", lambda _: version)
    with pytest.raises(DeviceError, match=message) as caught:
        CudaDriver(reported(ROW)).check("triton")
    assert "acceld[cuda]" in caught.value.hint


def test_a_leases_condition_is_that_of_its_own_gpu() -> None:
    second = ROW.replace("0, GPU-5f2c", "1, GPU-6").replace("1755", "1200").replace("0x0000000000000004", "Not Active")
    driver = CudaDriver(reported(f"{ROW}\n{second}"))
    assert driver.condition(driver.leases()[0]) == {
        "sm_mhz": 1755,
        "memory_mhz": 2619,
        "throttled": "0x0000000000000004",
    }
    assert driver.condition(driver.leases()[1]) == {"sm_mhz": 1200, "memory_mhz": 2619, "throttled": ""}
    with pytest.raises(DeviceError, match="GPU 7 is gone"):
        driver.condition(Lease(7, "GPU 7"))


@pytest.mark.parametrize("name", sorted(name for name, one in find_workloads().items() if one.family == "triton"))
def test_the_least_session_of_every_workload_fits_into_the_input_batch(name: str) -> None:
    one = workload(name)
    inputs = [ArraySpec(a.shape, a.dtype).size_bytes for a in one.arguments if not a.is_scalar]
    outputs = [ArraySpec(o.shape, o.dtype).size_bytes for o in one.outputs]
    assert 3 * sum(inputs + outputs) <= CudaDriver.batch_bytes


def test_one_lease_for_each_gpu_of_the_first_ones_kind() -> None:
    other = ROW.replace("0, GPU-5f2c", "2, GPU-9").replace("H100 80GB HBM3", "A100-SXM4-80GB").replace("9.0", "8.0")
    driver = CudaDriver(reported("\n".join([ROW, ROW.replace("0, GPU-5f2c", "1, GPU-6"), other])))
    assert [lease.name for lease in driver.leases()] == [
        "GPU 0 (NVIDIA H100 80GB HBM3)",
        "GPU 1 (NVIDIA H100 80GB HBM3)",
    ]
    assert driver.settings("triton")["capability"] == 90
    assert driver.settings("triton")["flush_bytes"] >= 4 * GPUS["h100"].l2_bytes
    assert "SM 1755 of 1980 MHz" in driver.sdk("triton")


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "lists no GPU"), (ROW.replace("Disabled", "Enabled"), "instances"), (ROW, "Triton is not installed")],
)
def test_what_is_missing_is_named_with_what_to_do(text: str, message: str) -> None:
    if "Triton" in message and importlib.util.find_spec("triton") is not None:
        pytest.skip("Triton is installed here")
    with pytest.raises(DeviceError, match=message) as caught:
        CudaDriver(reported(text)).check("triton")
    assert caught.value.hint


def test_every_gpu_of_the_targets_has_figures_with_a_source() -> None:
    assert set(GPUS) == set(TARGETS["cuda"].chips["triton"])
    for gpu in GPUS.values():
        peaks = gpu.peaks()
        assert peaks.source.startswith("NVIDIA ") and peaks.hbm_bytes_per_s > 1e11
        assert peaks.matmul_flops_per_s["bfloat16"] > peaks.vector_flops_per_s
        assert CudaDriver().limits(gpu.name) is not None


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA GeForce RTX 4090", None),
        ("NVIDIA L40", None),
    ],
)
def test_a_gpu_is_recognized_by_the_drivers_name_for_it(name: str, known: str | None) -> None:
    found = gpu_called(name)
    assert (found.name if found else None) == known


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("import os\n", "import"),
        ("from torch.utils import cpp_extension\n", "import"),
        ("import torch\ndef run(x):\n    try:\n        return x\n    except Exception:\n        return x\n", "try"),
        ("def run(x):\n    return getattr(x, 'data')\n", "builtin"),
        ("def run(x):\n    return x.__class__\n", "dunder"),
        ("import triton\n@triton.autotune(configs=[], key=[])\ndef run(x):\n    return x\n", "autotune"),
        ("seen = None\ndef run(x):\n    global seen\n    return x\n", "state"),
        ("def run(:\n", "syntax"),
    ],
)
def test_the_policy_refuses_what_no_kernel_needs(text: str, rule: str) -> None:
    failure = CudaDriver().refuse(Kernel(text, "triton"))
    assert failure is not None and failure.rule == rule and failure.message


def test_the_policy_accepts_every_baseline() -> None:
    for one in find_workloads().values():
        if "triton" in one.baselines:
            assert refused_triton(one.baselines["triton"].read_text()) is None, one.name


def torch_with_inputs() -> tuple[BlankTorch, Tensor]:
    return BlankTorch(132, 90), tensor_of(0, (4, 6, 8), "bfloat16")


def test_views_know_where_they_lie() -> None:
    _, x = torch_with_inputs()
    assert x.stride() == (48, 8, 1) and x.is_contiguous()
    part = x[1:3, :, None, 2]
    assert part.shape == (2, 6, 1) and part.storage_offset() == 50 and part.stride(0) == 48
    assert part.data_ptr() - x.data_ptr() == 100
    assert x.permute(2, 0, 1).shape == (8, 4, 6) and not x.T.is_contiguous()
    assert (
        x.view(-1, 8).shape == (24, 8) and x.flatten(1).shape == (4, 48) and x.unsqueeze(0).squeeze(0).shape == x.shape
    )


def test_allocations_are_written_down_in_order() -> None:
    torch, x = torch_with_inputs()
    torch.empty_like(x)
    torch.zeros((2, 3), dtype=torch.float32, device=x.device)
    torch.empty(5, dtype=torch.int32)
    assert [(one.size_bytes, one.fill) for one in torch.allocations] == [(384, None), (24, 0), (20, None)]
    assert torch.cuda.get_device_properties(0).multi_processor_count == 132


@pytest.mark.parametrize(
    "use",
    [
        lambda torch, x: torch.softmax(x, -1),
        lambda torch, x: torch.nn.functional.silu(x),
        lambda torch, x: torch.cuda.CUDAGraph(),
        lambda torch, x: x.float(),
        lambda torch, x: x.sum(),
        lambda torch, x: x.to(torch.float32),
        lambda torch, x: x.T.contiguous(),
        lambda torch, x: x[x],
        lambda torch, x: x.item(),
        lambda torch, x: int(x.max()),
        lambda torch, x: 1 if x else 0,
    ],
)
def test_what_computes_or_needs_data_is_refused_with_the_reason(use: Callable[[BlankTorch, Tensor], object]) -> None:
    with pytest.raises(BuildRefused, match="not available to host code"):
        use(*torch_with_inputs())


SOCKETS = """
import socket, sys
from acceld.evaluate.sandbox import linux, seccomp
import os
linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
seccomp.restrict(seccomp.Filter(os.getpid(), execute=True, devices=True))
made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
made.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
made.bind(chr(0) + f"acceld-test-{os.getpid()}")
made.listen(1)
try:
    socket.socket(socket.AF_INET)
except PermissionError:
    print("unix alone")
"""


def test_who_may_drive_devices_may_listen_on_a_unix_socket_and_no_other() -> None:
    done = subprocess.run([sys.executable, "-c", SOCKETS], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "unix alone", done.stderr


CONFINED = """
import os, sys
from acceld.evaluate.sandbox import linux, seccomp
linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
seccomp.restrict(seccomp.Filter(os.getpid(), execute=True, devices=sys.argv[1] == "devices"))
try:
    os.close(os.memfd_create("x"))
    import fcntl
    fcntl.ioctl(0, 0xC0DE)
except PermissionError:
    print("refused")
except OSError:
    print("asked the device")
"""


@pytest.mark.parametrize(("right", "said"), [("devices", "asked the device"), ("none", "refused")])
def test_only_who_may_drive_devices_reaches_them(right: str, said: str) -> None:
    done = subprocess.run([sys.executable, "-c", CONFINED, right], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == said, done.stderr


def test_the_worker_runs_own_code_with_the_gpu_and_the_builder_gets_no_device() -> None:
    driver = CudaDriver(reported(ROW))
    worker = driver.running("triton", "/tmp/plan", driver.leases()[0])
    assert worker.own_code and "/proc" in worker.device_paths and worker.memory_bytes > 1 << 40
    builder = driver.building("triton")
    assert not builder.own_code and not builder.device_paths and builder.execute


def test_the_guide_has_the_peaks_that_percentages_are_of() -> None:
    rows = [line.split("|") for line in (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8").splitlines()]
    shown = {cells[1].strip(): [cell.strip() for cell in cells[2:7]] for cells in rows if len(cells) == 9}
    for name, gpu in GPUS.items():
        rates = [gpu.matmul_tflops.get(dtype) for dtype in ("float16", "float8_e4m3fn", "float32")]
        figures = [gpu.hbm_bytes_per_s / 1e9, *rates, gpu.vector_tflops]
        assert shown[name] == ["-" if one is None else f"{one:g}" for one in figures]
