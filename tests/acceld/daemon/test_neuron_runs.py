"""A whole search on the stand-in for a Trainium machine, through a daemon and the commands a person uses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.standin_neuron.machine import CURRENT_NARROW, KERNEL, NARROW, small_silu, stand_in_machine


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return folders of the test's own, and the stand-in's interpreters named by variables."""
    return made_for(tmp_path, "legacy")


def made_for(tmp_path: Path, compiler: str) -> dict[str, str]:
    """Return the environment for one of the stand-in's compilers."""
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    machine = stand_in_machine(tmp_path, compiler=compiler)
    workloads = tmp_path / "workloads"
    workloads.mkdir()
    small_silu(workloads, NARROW)
    (tmp_path / "acceld.toml").write_text("[paths]\nworkloads = ['workloads']\n")
    return os.environ | {
        "PATH": f"{machine.folder}:{os.environ['PATH']}",
        "XDG_RUNTIME_DIR": str(runtime),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "ACCELD_HOME": str(tmp_path / ".acceld"),
        "ACCELD_EVALUATE_SLOTS": "1",
        "ACCELD_DEVICES_COMPILE_PYTHON": machine.compile_python,
        "ACCELD_DEVICES_RUNNER_PYTHON": machine.runner_python,
    }


def acceld(environment: dict[str, str], folder: Path, *words: str, code: int = 0) -> str:
    """Run one command in ``folder``. Return its output."""
    done = subprocess.run(
        [sys.executable, "-m", "acceld", *words],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    if done.returncode != code:
        log = (folder / ".acceld" / "log" / "acceld.log").read_text()[-8000:]
        raise AssertionError(f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}\n{log}")
    return done.stdout if code == 0 else done.stderr


@pytest.mark.slow
def test_a_search_on_a_device_finds_a_faster_kernel_and_never_calls_a_stand_in_measured(
    environment: dict[str, str], tmp_path: Path
) -> None:
    options = ("--backend", "neuron_legacy", "--preset", "quick", "--iterations", "1", "--plans", "3", "--beam", "1")
    result = json.loads(acceld(environment, tmp_path, "optimize", "small_silu", *options, "--wait", "--json"))
    try:
        assert result["state"] == "finished"
        assert result["method"] == "stand-in for nrtpy device"
        assert result["source"] == "simulated"
        assert result["counts"]["passed"] >= 1
        assert result["improved"]
        status = json.loads(acceld(environment, tmp_path, "status", "--json"))
        used = status["queue"]["backends"]["neuron_legacy"]["devices"]["utilization_by_core"]
        assert sum(share > 0 for share in used.values()) >= 1
        assert re.search(
            r"of all cores' time since it started( \(\d+ % while kernels waited\))?, \d of 4 leased",
            acceld(environment, tmp_path, "status"),
        )
        (again,) = json.loads(acceld(environment, tmp_path, "check", "r1", "--json"))["cases"]
        turns = again["interleaved"]
        assert again["holds"] and turns["win"]
        assert turns["low"] <= turns["ratio"] <= turns["high"] and turns["ratio"] > 1 + turns["band_percent"] / 100
        items = [{"workload": "small_silu", "kernel": text} for text in (NARROW + "# same\n", KERNEL)]
        (tmp_path / "in.jsonl").write_text("".join(json.dumps(one) + "\n" for one in items))
        where = ("--jsonl", "in.jsonl", "--out", "out.jsonl", "--backend", "neuron_legacy", "--gate", "search")
        acceld(environment, tmp_path, "profile", *where)
        tie, win = (json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines())
        assert (tie["win"], win["win"]) == (False, True)
        assert win["speedup_interval"][0] <= win["speedup"] <= win["speedup_interval"][1]
        refused = acceld(environment, tmp_path, "optimize", "small_silu", "--backend", "neuron", code=8)
        assert "nki can not be imported" in refused
    finally:
        acceld(environment, tmp_path, "stop")


@pytest.mark.slow
def test_a_search_on_kernels_of_the_package_nki(tmp_path: Path) -> None:
    environment = made_for(tmp_path, "jit")
    (tmp_path / "workloads" / "small_silu" / "kernel.py").write_text(CURRENT_NARROW)
    options = ("--backend", "neuron", "--chip", "trn2", "--preset", "quick", "--iterations", "1", "--plans", "4")
    result = json.loads(acceld(environment, tmp_path, "optimize", "small_silu", *options, "--wait", "--json"))
    try:
        assert (result["state"], result["api"], result["chip"]) == ("finished", "nki", "trn2")
        assert result["method"] == "stand-in for nrtpy device"
        assert result["improved"], result
        (again,) = json.loads(acceld(environment, tmp_path, "check", "r1", "--json"))["cases"]
        assert again["holds"] and again["interleaved"]["win"]
    finally:
        acceld(environment, tmp_path, "stop")


def test_a_run_on_a_machine_without_neuron_is_refused_before_it_begins(
    environment: dict[str, str], tmp_path: Path
) -> None:
    del environment["ACCELD_DEVICES_COMPILE_PYTHON"]
    reported = acceld(environment, tmp_path, "optimize", "small_silu", "--backend", "neuron_legacy", code=8)
    try:
        assert "no interpreter with neuronx-cc" in reported
        assert "no Neuron package" in reported
        assert json.loads(acceld(environment, tmp_path, "runs", "--json"))["runs"] == []
    finally:
        acceld(environment, tmp_path, "stop")


@pytest.mark.slow
def test_the_best_of_a_simulated_run_are_measured_and_a_kernel_that_breaks_a_core_ends_no_daemon(
    environment: dict[str, str], tmp_path: Path
) -> None:
    quick = ("--preset", "quick", "--iterations", "1", "--plans", "3", "--beam", "1", "--wait", "--json")
    acceld(environment, tmp_path, "optimize", "small_silu", "--backend", "simulator", "--chip", "trn1", *quick)
    try:
        reported = json.loads(acceld(environment, tmp_path, "check", "r1", "--on", "device", "--top", "1", "--json"))
        assert (reported["backend"], reported["order_agrees"], reported["order_pairs"]) == ("neuron_legacy", 1, 1)
        baseline, best = reported["kernels"]
        assert (baseline["baseline"], best["status"]) == (True, "passed")
        assert best["speedup"] > 1.1 and best["interleaved"]["win"] and baseline["interleaved"] is None
        stored = acceld(environment, tmp_path, "query", "SELECT backend FROM evaluations WHERE id > 4", "--csv")
        assert "neuron_legacy" in stored
        (tmp_path / "crash.py").write_text(NARROW.replace("def kernel(", "def kernel_crash("))
        options = ("--workload", "small_silu", "--backend", "neuron_legacy", *quick)
        acceld(environment, tmp_path, "optimize", "crash.py", *options, code=1)
        assert json.loads(acceld(environment, tmp_path, "status", "--json"))["runs"]["failed"] == 1
    finally:
        acceld(environment, tmp_path, "stop")
