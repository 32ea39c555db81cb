"""The first trial of a GPU: whatever fails on the machine, it says so, ends without a row as a failure, and brings back
what it learnt.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from acceld.workloads import load_workload, workload
from scripts import gpu_steps, gpu_trial

STANDIN = Path(__file__).parents[1] / "standin_cuda"
GPU = "0, GPU-5f2c, Stand-in H100, 9.0, 580.65.06, 81559, 1980, 1980, 2619, 0x0000000000000000, Enabled, Disabled"
NVIDIA_SMI = f"""#!/bin/sh
case "$*" in
*query-gpu*) echo '{GPU}' ;;
*) printf 'GPU 00000000:04:00.0\\n    GPU UUID : GPU-5f2c\\n    Minor Number : 3\\n' ;;
esac
"""
Trial = Callable[..., tuple[int, dict[str, Any], str]]

pytestmark = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler to build the stand-in with"),
    pytest.mark.skipif(importlib.util.find_spec("triton") is not None, reason="its parts are missing here on purpose"),
]


class Machine:
    """A machine with a driver in a folder of its own, which only LD_LIBRARY_PATH and PATH name, and stubs of packages."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder, patch
        self.driver, self.packages = folder / "driver", folder / "packages"
        for one in (self.driver, self.packages):
            one.mkdir()
        patch.setenv("LD_LIBRARY_PATH", str(self.driver))
        patch.setenv("PATH", f"{self.driver}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("PYTHONPATH", str(self.packages))
        patch.delenv("OUT", raising=False)
        tool = self.driver / "nvidia-smi"
        tool.write_text(NVIDIA_SMI)
        tool.chmod(0o755)
        self.package("triton", "3.6.0", "")
        self.package("torch", "2.11.0", (STANDIN / "torch.py").read_text())

    def package(self, name: str, version: str, text: str) -> None:
        """Install a package of one module."""
        for former in self.packages.glob(f"{name}-*"):
            shutil.rmtree(former)
        (self.packages / f"{name}.py").write_text(text)
        named = self.packages / f"{name}-{version}.dist-info"
        named.mkdir()
        (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")

    def without(self, name: str) -> None:
        """Take a package away."""
        for one in self.packages.glob(f"{name}*"):
            shutil.rmtree(one) if one.is_dir() else one.unlink()

    def library(self, *macros: str) -> None:
        """Build the driver's library, with macros that change how it behaves."""
        made = self.driver / "libcuda.so.1"
        flags = [f"-D{one}" for one in macros]
        subprocess.run(["gcc", "-w", "-shared", "-fPIC", *flags, "-o", str(made), str(STANDIN / "cuda.c")], check=True)

    def words(self, *further: str) -> list[str]:
        return ["-o", str(self.folder / "sent"), "--home", str(self.folder / "home"), *further]

    def found(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "sent" / "gpu_trial.json").read_text())
        return found

    def try_out(self, *further: str) -> tuple[int, dict[str, Any], str]:
        """Run the trial. Return its exit code, its figures and its report, after a look at the folder to send back."""
        code = gpu_trial.main(self.words(*further))
        sent = self.folder / "sent"
        files = {one.name for one in sent.iterdir()}
        assert {gpu_trial.FIGURES, gpu_trial.REPORT, gpu_trial.MACHINE} <= files and len(files) <= 6, files
        machine = (sent / gpu_trial.MACHINE).read_text()
        assert "==== nvidia-smi -q\n" in machine and "==== versions\npython 3" in machine
        assert f"LD_LIBRARY_PATH={self.driver}" in machine
        return code, self.found(), (sent / gpu_trial.REPORT).read_text()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield Machine(tmp_path, monkeypatch)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.slow
def test_a_machine_without_a_driver_is_named(machine: Machine) -> None:
    (machine.driver / "nvidia-smi").write_text("#!/bin/sh\necho NVIDIA-SMI has failed >&2\nexit 9\n")
    code, found, report = machine.try_out()
    assert code == gpu_trial.NO_GPU and found["errors"]["check"].startswith("nvidia-smi failed: NVIDIA-SMI has failed")
    assert "- check: nvidia-smi failed" in report and found["rows"] == {}


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("3.3.1", "Triton 3.3.1 is too old: kernels are built with Triton 3.4 or later"),
        pytest.param("", "Triton is not", marks=pytest.mark.slow),
    ],
)
def test_a_triton_that_can_not_build_is_refused_before_anything_runs(machine: Machine, version: str, said: str) -> None:
    machine.package("triton", version, "") if version else machine.without("triton")
    code, found, _ = machine.try_out()
    assert code == gpu_trial.NO_GPU and said in found["errors"]["check"] and "acceld[cuda]" in found["errors"]["check"]
    assert [one["step"] for one in found["steps"]] == ["check"]


@pytest.mark.slow
def test_missing_torch_is_said_once_and_before_the_workloads(machine: Machine) -> None:
    machine.without("torch")
    code, found, _ = machine.try_out()
    assert code == gpu_trial.NO_GPU and list(found["errors"]) == ["check"] and found["rows"] == {}
    assert "PyTorch is not installed" in found["errors"]["check"]


@pytest.mark.parametrize(
    ("macros", "said"),
    [
        pytest.param(None, "libcuda.so.1 can not be loaded", marks=pytest.mark.slow),
        pytest.param(("NO_DEVICE",), "cuInit: CUDA_ERROR_NO_DEVICE (100)", marks=pytest.mark.slow),
        pytest.param(("WRONG",), "the first kernel ran, and its result is wrong", marks=pytest.mark.slow),
    ],
)
def test_a_driver_that_does_not_work_ends_the_trial_with_its_own_words(
    machine: Machine, macros: tuple[str, ...] | None, said: str
) -> None:
    if macros is not None:
        machine.library(*macros)
    code, found, report = machine.try_out()
    assert code == gpu_trial.NO_GPU and said in found["errors"]["unconfined"] and said in report
    assert (
        found["gpu"] == "Stand-in H100"
        and "==== acceld doctor" in (machine.folder / "sent" / "machine.txt").read_text()
    )


@pytest.mark.slow
def test_a_step_that_hangs_is_ended_at_its_deadline_and_the_rest_comes_back(machine: Machine) -> None:
    machine.library("HANGS")
    machine.patch.setitem(gpu_trial.DEADLINES_S, "unconfined", 6.0)
    code, found, _ = machine.try_out()
    assert code == gpu_trial.NO_GPU and "took longer than 6 s and was ended" in found["errors"]["unconfined"]


@pytest.mark.slow
def test_a_missing_wheel_is_named(machine: Machine) -> None:
    wheels = machine.folder / "wheels"
    wheels.mkdir()
    code, found, _ = machine.try_out("--wheels", str(wheels))
    assert code == gpu_trial.NO_GPU and "No matching distribution found for aiohttp" in found["errors"]["install"]


@pytest.mark.slow
def test_a_builder_that_fails_comes_after_all_that_works(machine: Machine) -> None:
    machine.library()
    code, found, _ = machine.try_out()
    works = [one["step"] for one in found["steps"] if "error" not in one]
    assert works == ["check", "unconfined", "confined --highest L4", "calls", "torch", "torch_confined --highest L4"]
    assert code == gpu_trial.NO_GPU and list(found["errors"]) == ["triton"]
    checked, _, confined, *_ = found["steps"]
    assert checked["library"] == str(machine.driver / "libcuda.so.1") and checked["minors"] == {"GPU-5f2c": 3}
    assert confined["kernel_us"] > 0, "the worker's jail found the library and the packages without an environment"


@pytest.mark.slow
def test_a_jail_that_refuses_the_driver_a_call_is_taken_down_to_what_works(machine: Machine) -> None:
    machine.library("NEEDS_NETWORK")
    _, found, _ = machine.try_out()
    tried = {one["step"]: one for one in found["steps"]}
    assert "cuInit" in tried["confined --highest L1"]["error"] and "error" not in tried["confined --highest L0"]
    assert tried["calls"]["refused_system_calls"] == {"41": 1}, "socket(2)"
    assert "torch_confined --highest L4" not in tried and "torch_confined --highest L0" in tried


def test_a_trial_that_measures_nothing_fails_and_brings_the_daemons_log(machine: Machine) -> None:
    machine.patch.setattr(gpu_trial.Trial, "_preflight", lambda self: self._folder.figures.update(chip="h100") or "L4")
    (machine.driver / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    code, found, report = machine.try_out("--workloads", "rmsnorm_h128", "gemm_n28672_k4096", "--minutes", "0.1")
    assert code == gpu_trial.NO_ROW and list(found["rows"]) == ["rmsnorm_h128"]
    assert "nvidia-smi failed" in found["rows"]["rmsnorm_h128"]["error"] and "| `rmsnorm_h128` | own | - |" in report
    assert "serving" in (machine.folder / "sent" / gpu_trial.LOG).read_text()
    assert (machine.folder / "sent" / gpu_trial.DATABASE).is_file()


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_a_trial_that_is_ended_keeps_what_it_learnt(machine: Machine, number: signal.Signals) -> None:
    machine.library("HANGS")
    command = [sys.executable, str(gpu_trial.ROOT / "scripts" / "gpu_trial.py"), *machine.words()]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as trial:
        deadline = time.monotonic() + 300
        while not (machine.folder / "sent" / gpu_trial.FIGURES).is_file() or not machine.found()["steps"]:
            assert trial.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        trial.send_signal(number)
        code = trial.wait(300)
    found = machine.found()
    assert found["steps"][0]["step"] == "check" and found["gpu" if number is signal.SIGTERM else "steps"]
    if number is signal.SIGTERM:
        assert code == gpu_trial.INTERRUPTED and found["errors"]["interrupted"] == "the trial was ended by SIGTERM"


def test_shapes_are_copies_of_the_workload_that_can_be_loaded(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in gpu_trial.ORDER[:5]:
        assert gpu_steps.main(["shapes", "--home", str(machine.folder), name]) == 0
        own, *others = json.loads(capsys.readouterr().out)["folders"].items()
        assert own == ("", str(workload(name).folder.resolve())) and len(others) >= 1
        for text, folder in others:
            shaped = load_workload(folder)
            assert all(f"{symbol}={shaped.values[symbol]}" in text for symbol in shaped.values if symbol in text)
            assert (
                shaped.name == Path(folder).name
                and shaped.reference is not None
                and shaped.baselines["triton"].is_file()
            )


def test_the_papers_rows_come_first_and_every_workload_of_the_backend_is_tried() -> None:
    assert [one.split("_h32_")[0] for one in gpu_trial.ORDER[:4]] == [
        "gqa_paged_decode",
        "gqa_paged_prefill_causal",
    ] * 2
    assert (
        len(set(gpu_trial.ORDER)) == 11 == len([one for one in gpu_trial.ORDER if "triton" in workload(one).baselines])
    )


def test_the_tables_have_a_line_for_each_shape(tmp_path: Path) -> None:
    turns = {"ratio": 1.5, "low": 1.4, "high": 1.6}
    row = {
        "baseline_latency_us": 30.0, "best_latency_us": 20.0, "paired": turns, "percent_of_peak": 50.0,
        "wins": [{"rule": "split_reduction"}],
        "torch": {"": {"kernel": "sdpa, padded", "us": 25.0}, "BATCH=1": None},
        "points": {"BATCH=1": {"best_us": 2.0, "baseline_us": 3.0, "turns": turns}, "BATCH=2": {"error": "too|slow"}},
    }  # fmt: skip
    figures = {"gpu": "H", "sdk": "S", "sandbox": "L4", "rows": {"w": row}}
    (tmp_path / "figures.json").write_text(json.dumps(figures))
    page = tmp_path / "page.md"
    page.write_text(f"before\n{gpu_trial.BEGIN}\nold\n{gpu_trial.END}\nafter\n")
    assert gpu_trial.main(["--tables-from", str(tmp_path / "figures.json"), str(page)]) == 0
    text = page.read_text()
    assert text.startswith("before") and text.endswith("after\n") and "old" not in text
    assert "| `w` | own | 30.0 | 20.0 | 1.50x (1.40 – 1.60) | 25.0 | sdpa, padded | 50.0 | split_reduction |" in text
    assert "|  | BATCH=1 | 3.0 | 2.0 | 1.50x (1.40 – 1.60) | - | - | - |  |" in text and "| too/slow |" in text
