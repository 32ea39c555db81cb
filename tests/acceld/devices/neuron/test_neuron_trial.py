"""The trial runs all steps from source to time; the toolchain that it finds has real packages only."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from acceld.cli.diagnosis import machine
from acceld.devices.neuron.runtime import canary
from acceld.devices.neuron.runtime.compiler import CompileJail, unjailed
from acceld.devices.neuron.tools import trial
from acceld.devices.neuron.tools.advice import advice
from acceld.devices.neuron.tools.detection import NeuronPackage, NeuronTools, find_neuron, nki_version
from acceld.devices.neuron.tools.toolchain import Toolchain, find_toolchain
from acceld.errors import DeviceError, UsageError
from acceld.evaluate.simulated import simulation, simulator
from acceld.nki.frontend.tracing import TensorSpec, trace
from tests.standin_neuron.machine import StandInMachine, stand_in_machine, tool

STANDIN = Path(__file__).resolve().parents[3] / "standin_neuron"


def _trial(tmp_path: Path, scenario: str = "", **without: str) -> trial.Trial:
    profiler = without.get("profiler", tool(tmp_path, "neuron-profile"))
    tools = Toolchain(sys.executable, sys.executable, profiler, tool(tmp_path, "neuron-ls"))
    named = {"ACCELD_STANDIN": "1", "PYTHONPATH": f"{STANDIN / 'legacy'}:{STANDIN / 'runtime'}"}
    found = NeuronTools((), (), profiler, (), "")
    return trial.Trial(
        tools,
        found,
        {CompileJail.OFF: unjailed},
        api="nki_legacy",
        target="trn1",
        folder=tmp_path,
        named={**named, "STANDIN_SCENARIO": scenario},
        device_pattern=str(tmp_path / "none*"),
    )


async def test_the_known_good_kernel_goes_from_source_to_a_time_by_every_runtime_there_is(tmp_path: Path) -> None:
    tried = _trial(tmp_path)
    assert await tried.run(), tried.report
    steps = {step["name"]: step for step in tried.report["steps"]}
    works = [name for name, step in steps.items() if "error" not in step]
    assert [name for name in works if name.startswith("compile")] == ["compile, jail off, neuronxcc.nki.baremetal"]
    assert {"run, nrtpy", "run, spike", "run, capture", "time, nrtpy", "time, capture"} <= set(works)
    assert steps["compile, jail off, neuronxcc.nki.benchmark"]["absent"]
    compiled = steps["compile, jail off, neuronxcc.nki.baremetal"]["result"]
    assert compiled["neff"]["outputs"] == (("output_0", 32768),)
    assert "save_neff_name" in compiled["signatures"]["neuronxcc.nki.baremetal"]
    timed = steps["time, nrtpy"]["result"]
    assert (timed["source"], timed["ended_clean"], timed["steady"]) == ("simulated", True, True)
    assert "neuron_device" in steps["neuron-ls"]["result"] and "n_0123" in steps["summary"]["result"]
    assert json.loads(trial.scrubbed(tried.report))["version"] == trial.VERSION


async def test_the_trial_goes_on_after_a_failure_and_the_advice_names_it(tmp_path: Path) -> None:
    tried = _trial(tmp_path, "capture fails")
    assert await tried.run(), tried.report
    failed = {step["name"] for step in tried.report["steps"] if "error" in step}
    assert "run, capture" in failed and not failed & {"run, nrtpy", "time, nrtpy"}
    reported = {one.name: one for one in advice(json.loads(trial.scrubbed(tried.report)))}
    assert "5 GiB of device memory" in reported["run, capture"].text
    assert reported["time, nrtpy"].state == "ok" and "least visible win 0.002 µs" in reported["time, nrtpy"].text
    assert 'devices.compile_jail = "off"' in reported["compile"].todo


def test_a_report_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "ip-10-0-0-7.internal")
    report = {
        "a": f"{Path.home()}/venv/bin/python on ip-10-0-0-7.internal, i-0123456789abcdef0, 10.1.2.3, 123456789012",
        "b": "AKIAABCDEFGHIJKLMNOP and sk-abcdefghijklmnop1234 and token=abcdefghij; neuronx-cc 2.27.5334.0",
    }
    text = trial.scrubbed(report)
    for secret in (
        str(Path.home()),
        "ip-10-0-0-7",
        "i-0123",
        "10.1.2.3",
        "123456789012",
        "AKIA",
        "sk-abc",
        "abcdefghij",
    ):
        assert secret not in text, secret
    assert "2.27.5334" in text


def acceld(machine: StandInMachine, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run one command on a stand-in machine."""
    return subprocess.run(
        [sys.executable, "-m", "acceld", "doctor", *words],
        env=os.environ
        | {
            "PATH": f"{machine.folder}:{os.environ['PATH']}",
            "PYTHONPATH": str(STANDIN.parents[1]),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "ACCELD_HOME": str(folder / ".acceld"),
            "ACCELD_DEVICES_COMPILE_PYTHON": machine.compile_python,
            "ACCELD_DEVICES_RUNNER_PYTHON": machine.runner_python,
        },
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize(
    ("compiler", "lnc", "asked"),
    [
        ("legacy", 1, 1),
        pytest.param("jit", 2, 2, marks=pytest.mark.slow),
        pytest.param("jit", 2, 1, marks=pytest.mark.slow),
    ],
)
def test_the_command_that_people_send_the_report_of(compiler: str, lnc: int, asked: int, tmp_path: Path) -> None:
    machine = stand_in_machine(tmp_path, compiler=compiler, lnc=lnc)
    api, target = ("nki_legacy", "trn1") if compiler == "legacy" else ("nki", "trn2")
    words = ("--neuron", "--api", api, "--target", target, "--lnc", str(asked), "--out", "report.json")
    done = acceld(machine, tmp_path, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["api"], report["lnc"], report["target"]) == (api, asked, target)
    (timed,) = (step["result"] for step in report["steps"] if step["name"] == "time, nrtpy")
    assert timed["source"] == "simulated" and timed["method"] == "nrtpy device"
    assert {use["core"] for use in machine.uses()} == {0}
    read = acceld(machine, tmp_path, "--from", "report.json")
    assert read.returncode == 0, read.stderr
    assert "devices.backend" in read.stdout and "least visible win 0.002 µs" in read.stdout
    assert "a Neuron device (/dev/neuron*)" in read.stdout and "libnrt.so.1" in read.stdout


def test_a_machine_with_half_of_the_tools_gets_a_report_that_names_each_missing_one(tmp_path: Path) -> None:
    machine = stand_in_machine(tmp_path)
    for name in ("neuron-ls", "neuron-monitor", "compile-python"):
        (machine.folder / name).unlink()
    done = acceld(machine, tmp_path, "--neuron", "--api", "nki_legacy", "--out", "report.json")
    assert done.returncode == 1, done.stdout + done.stderr
    reported = done.stdout
    for what in ("neuron-ls", "neuron-monitor", "neuron-explorer or neuron-profile", "nrtpy or spike", "libnrt.so.1"):
        assert what in reported, reported
    steps = {step["name"]: step for step in json.loads((tmp_path / "report.json").read_text())["steps"]}
    assert "can not be started" in steps["neuron-ls"]["error"]
    assert "compile-python" in steps["versions, jail off"]["error"]
    assert (tmp_path / "report.json").exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"steps": 1}'])
def test_what_is_no_report_is_reported(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(UsageError, match="not a report"):
        machine._read(tmp_path / "x.json")


def test_a_logical_core_that_is_too_small_is_reported(tmp_path: Path) -> None:
    tried = _trial(tmp_path)
    tried.lnc = 2
    assert not asyncio.run(tried.run())
    (cores,) = (step for step in tried.report["steps"] if step["name"] == "cores")
    assert "LNC 1, not 2" in cores["error"]


def test_an_environment_of_a_persons_own_with_nrtpy_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acceld.devices.neuron.tools.detection.VENVS", tmp_path / "none")
    monkeypatch.setattr("acceld.devices.neuron.tools.detection.HOME", lambda: tmp_path)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    for name, package in (("plain", "numpy"), ("nrt", "nrtpy")):
        made = tmp_path / name
        (made / "lib" / "python3.12" / "site-packages" / package).mkdir(parents=True)
        (made / "bin").mkdir()
        (made / "pyvenv.cfg").touch()
        (made / "bin" / "python").symlink_to(sys.executable)
    assert find_neuron().pythons == (str(tmp_path / "nrt" / "bin" / "python"),)


def test_the_version_of_nki_is_that_of_the_newest_real_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acceld.devices.neuron.tools.detection.VENVS", tmp_path)
    monkeypatch.setattr("acceld.devices.neuron.tools.detection.HOME", lambda: tmp_path / "none")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    nki_version.cache_clear()
    try:
        assert nki_version() == ""
        nki_version.cache_clear()
        for number, (version, real) in enumerate((("0.5.0", True), ("0.4.1+x", True), ("0.7.0", False))):
            packages = tmp_path / f"aws_neuronx_venv_{number}" / "lib" / "python3.12" / "site-packages"
            (packages / f"nki-{version}.dist-info").mkdir(parents=True)
            (packages / "nki" / ("isa" if real else "empty")).mkdir(parents=True)
            (packages.parents[2] / "bin").mkdir()
            (packages.parents[2] / "bin" / "python").touch()
        assert nki_version() == "0.5"
    finally:
        nki_version.cache_clear()


def test_aws_environments_are_found_by_themselves_and_asked_what_they_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acceld.devices.neuron.tools.detection.VENVS", tmp_path)
    held = {
        "neuronx-cc": ("neuronxcc/driver.py", "2.21.1"),
        "spike": ("spike/_core.so", "0.2"),
        "nki": ("x.txt", "0.1"),
    }
    packages = tmp_path / "packages"
    for name, (file, version) in held.items():
        reported = packages / f"{name.replace('-', '_')}-{version}.dist-info"
        reported.mkdir(parents=True)
        (reported / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (reported / "RECORD").write_text(f"{file},,\n")
    python = tmp_path / "aws_neuronx_venv_pytorch_2_7" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    tools = find_neuron()
    assert tools.pythons == (str(python),)
    assert {one.name: one.real for one in tools.packages} == {"neuronx-cc": True, "spike": True, "nki": False}
    found = find_toolchain("nki_legacy", found=tools)
    assert (found.compile_python, found.runner_python) == (str(python), str(python))
    with pytest.raises(DeviceError, match=r"nki 0\.1 \(placeholder\)"):
        find_toolchain("nki", found=tools)


def test_the_interpreter_with_the_real_package_is_taken_and_placeholders_are_not() -> None:
    packages = (
        NeuronPackage("neuronx-cc", "1.0", False, "/a/python"),
        NeuronPackage("neuronx-cc", "2.21", True, "/b/python"),
        NeuronPackage("nrtpy", "2.35", True, "/c/python"),
    )
    tools = NeuronTools((), packages, "/opt/aws/neuron/bin/neuron-profile", (), "")
    found = find_toolchain("nki_legacy", found=tools)
    assert (found.compile_python, found.runner_python) == ("/b/python", "/c/python")
    with pytest.raises(DeviceError, match=r"neuronx-cc 1\.0 \(placeholder\)"):
        find_toolchain("nki", found=tools)
    named = find_toolchain("nki", compile_python="/x", runner_python="/y", found=tools)
    assert (named.compile_python, named.runner_python) == ("/x", "/y")


def test_the_stand_in_is_not_taken_for_real_even_where_it_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(STANDIN / "legacy"))
    found = find_neuron((sys.executable,))
    assert [(one.version, one.real) for one in found.packages if "standin" in one.version] == [
        ("2.21.0+standin", False)
    ]
    with pytest.raises(DeviceError, match="placeholder"):
        find_toolchain("nki_legacy", found=found)


@pytest.mark.parametrize(("api", "chip"), [("nki_legacy", "trn1"), ("nki_legacy", "trn2"), ("nki", "trn2")])
def test_the_known_good_kernel_is_legal_on_the_simulator_and_gives_the_expected_sum(api: str, chip: str) -> None:
    kernel = canary.kernel(api, 1)
    specs = [TensorSpec(one.shape, one.dtype) for one in canary.INPUTS]
    program = trace(kernel.text, specs, entry=kernel.entry, filename=kernel.filename, api=api, chip=chip)
    simulator.verify(program, strict=True)
    arrays = [np.frombuffer(data, np.float32).reshape(128, 64) for data in canary.inputs()]
    (result,) = simulation.run(program, arrays, shuffle=None, float64=False, max_bytes=1 << 30)
    assert result.tobytes() == canary.expected()
