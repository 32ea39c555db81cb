"""The trial goes through all steps from source to time; the toolchain it finds holds real packages only."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from acceld.devices.neuron.runtime import canary
from acceld.devices.neuron.tools import trial
from acceld.devices.neuron.tools.detection import NeuronPackage, NeuronTools, find_neuron
from acceld.devices.neuron.tools.toolchain import Toolchain, find_toolchain
from acceld.errors import DeviceError
from acceld.evaluate.simulated import simulator
from acceld.nki.frontend.tracing import TensorSpec, trace
from tests.standin_neuron.machine import stand_in_machine, tool

STANDIN = Path(__file__).resolve().parents[3] / "standin_neuron"


def _trial(tmp_path: Path, scenario: str = "") -> trial.Trial:
    tools = Toolchain(sys.executable, sys.executable, tool(tmp_path, "neuron-profile"), tool(tmp_path, "neuron-ls"))
    named = {"ACCELD_STANDIN": "1", "PYTHONPATH": str(STANDIN / "legacy"), "STANDIN_SCENARIO": scenario}
    return trial.Trial(
        tools, api="nki_legacy", target="trn1", folder=tmp_path, named=named, device_pattern=str(tmp_path / "none*")
    )


async def test_the_known_good_kernel_goes_from_source_to_a_time(tmp_path: Path) -> None:
    tried = _trial(tmp_path)
    assert await tried.run(), tried.report
    names = [step["name"] for step in tried.report["steps"]]
    assert names == ["cores", "versions", "compile", "compile again, from the cache", "canary", "time", "summary"]
    timed = tried.report["steps"][5]["result"]
    assert (timed["source"], timed["ended_clean"], timed["steady"]) == ("simulated", True, True)
    assert json.loads(json.dumps(tried.report)) == tried.report


async def test_a_step_that_fails_ends_the_trial_and_is_written_down(tmp_path: Path) -> None:
    tried = _trial(tmp_path, "nan")
    assert not await tried.run()
    assert tried.report["steps"][-1]["name"] == "canary"
    assert "did not add" in tried.report["steps"][-1]["error"]


@pytest.mark.parametrize(
    ("compiler", "lnc", "asked"),
    [
        ("jit", 2, 2),
        pytest.param("jit", 2, 1, marks=pytest.mark.slow),
        pytest.param("legacy", 1, 1, marks=pytest.mark.slow),
    ],
)
def test_the_command_that_people_send_the_report_of(compiler: str, lnc: int, asked: int, tmp_path: Path) -> None:
    machine = stand_in_machine(tmp_path, compiler=compiler, lnc=lnc)
    api, target = ("nki_legacy", "trn1") if compiler == "legacy" else ("nki", "trn2")
    command = [sys.executable, "-m", "acceld.devices.neuron.tools.trial", "--api", api, "--target", target]
    command += ["--lnc", str(asked), "--out", str(tmp_path / "report.json")]
    command += ["--compile-python", machine.compile_python, "--runner-python", machine.runner_python]
    environment = os.environ | {"PATH": f"{machine.folder}:{os.environ['PATH']}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert [step["name"] for step in report["steps"] if "error" not in step][-1] == "time"
    assert (report["api"], report["lnc"], report["target"]) == (api, asked, target)
    timed = report["steps"][-1]["result"]
    assert timed["source"] == "simulated" and timed["method"].startswith("stand-in for")
    assert {use["core"] for use in machine.uses()} == {0}


def test_a_logical_core_that_is_too_small_is_told(tmp_path: Path) -> None:
    machine = stand_in_machine(tmp_path)
    tools = Toolchain(machine.compile_python, machine.runner_python, "", str(machine.folder / "neuron-ls"))
    tried = trial.Trial(tools, api="nki", target="trn2", folder=tmp_path, lnc=2, device_pattern=str(tmp_path / "no*"))
    assert not asyncio.run(tried.run())
    assert "LNC 1, not 2" in tried.report["steps"][0]["error"]


def test_without_neuron_the_command_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("acceld.devices.neuron.tools.detection.VENVS", tmp_path)
    assert trial.main(["--target", "trn2", "--api", "nki", "--out", str(tmp_path / "report.json")]) == 8
    assert "no Neuron package" in capsys.readouterr().err
    assert not (tmp_path / "report.json").exists()


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
        told = packages / f"{name.replace('-', '_')}-{version}.dist-info"
        told.mkdir(parents=True)
        (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (told / "RECORD").write_text(f"{file},,\n")
    python = tmp_path / "aws_neuronx_venv_pytorch_2_7" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} "$@"\n')
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
    (result,) = simulator.run(program, arrays, shuffle=None, float64=False, max_bytes=1 << 30)
    assert result.tobytes() == canary.expected()
