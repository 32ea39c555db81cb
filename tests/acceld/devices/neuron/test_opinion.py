"""A second opinion of AWS's simulator and compiler, on a stand-in that gives recorded answers."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acceld.chips import NKI_VERSIONS
from acceld.config import EvaluateConfig
from acceld.devices.neuron.opinion import NeuronJudge, Simulator, judge
from acceld.devices.neuron.runtime import canary
from acceld.devices.neuron.runtime.compiler import CompileJail, unjailed
from acceld.devices.neuron.tools.advice import advice
from acceld.devices.neuron.tools.detection import NeuronTools, nki_version
from acceld.devices.neuron.tools.toolchain import Toolchain
from acceld.devices.neuron.tools.trial import Trial, scrubbed
from acceld.errors import DeadlineError, DeviceError
from acceld.evaluate.correctness import datasets
from acceld.evaluate.correctness.bands import pieces_of
from acceld.evaluate.correctness.errors import NONE
from acceld.evaluate.correctness.gates import least_tolerance
from acceld.evaluate.interface import EvaluationRequest, started
from acceld.evaluate.opinion import RULE, Opinion, find_judge
from acceld.evaluate.sandbox.jail import Level
from acceld.evaluate.sandbox.ladder import SandboxReport, probe_level
from acceld.evaluate.simulated.evaluator import SimulatedEvaluator
from acceld.model import Failure, Gate, Kernel, Status
from acceld.workloads import Workload, load_workload, make_inputs
from tests.standin_neuron.machine import CURRENT, PROJECT, STANDIN, small_silu, tool

STANDIN_NKI = PROJECT / "tests" / "standin_nki"
OTHER = CURRENT.replace("512 * tile", "tile * 512", 1)
"""Another text of the same size."""


class Machine:
    """An interpreter with the stand-in, and the answers that it gives."""

    def __init__(self, folder: Path, *beside: Path, version: str = "0.6") -> None:
        """Write the interpreter. ``version`` is that of the package ``nki``."""
        self.answers, package = folder / "answers", folder / "package"
        shutil.copytree(STANDIN_NKI, package)
        (held,) = package.glob("*.dist-info")
        held = held.rename(package / f"nki-{version}.0+standin.dist-info")
        (held / "METADATA").write_text(f"Metadata-Version: 2.1\nName: nki\nVersion: {version}.0+standin\n")
        self.answers.mkdir(parents=True, exist_ok=True)
        for one in (folder, self.answers):
            one.chmod(0o755)
        self.python = folder / "python"
        paths = ":".join(map(str, (self.answers, package, *beside, PROJECT)))
        named = f"STANDIN_NKI={version} ACCELD_STANDIN=1 STANDIN_COMPUTES=1 STANDIN_BESIDE={shlex.quote(':'.join(map(str, beside)))}"
        self.python.write_text(f'#!/bin/sh\n{named} PYTHONPATH={paths} exec {sys.executable} "$@"\n')
        self.python.chmod(0o755)
        self._known: dict[str, dict[str, Any]] = {}
        sums = np.frombuffer(canary.expected(), np.float32).reshape(128, 64)
        self.answer(canary.kernel("nki", 1).text, outputs=self.array("sums", sums))

    def array(self, name: str, value: Any) -> list[str]:
        """Store an array, and return how an answer names it."""
        np.save(self.answers / f"{name}.npy", value)
        return [f"{name}.npy"]

    def answer(self, text: str, **answer: Any) -> None:
        """Record the answer for a kernel."""
        self._known[hashlib.sha256(text.encode()).hexdigest()] = answer
        (self.answers / "answers.json").write_text(json.dumps(self._known))

    @property
    def config(self) -> EvaluateConfig:
        """A configuration that names the interpreter."""
        return EvaluateConfig(second_python=str(self.python), memory_gib=2.0)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a machine with the stand-in alone."""
    monkeypatch.setattr("acceld.devices.neuron.tools.detection.VENVS", tmp_path / "none")
    monkeypatch.setattr("acceld.devices.neuron.tools.detection.HOME", lambda: tmp_path / "none")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    return Machine(tmp_path)


@asynccontextmanager
async def judging(machine: Machine, folder: Path) -> AsyncIterator[NeuronJudge]:
    report = await probe_level()
    if report.level < Level.L1:
        pytest.skip("nothing can jail the simulator here")
    found = judge(machine.config, folder / "state", report)
    assert found is not None
    try:
        yield found
    finally:
        await found.stop()


def data_for(loaded: Workload, folder: Path) -> datasets.DataSet:
    """Write a public data set of the workload."""
    made = folder / "data"
    (inputs,) = make_inputs(loaded, 0)
    with datasets.begin(made) as begun:
        writer = datasets.Writer(begun.partial)
        writer.inputs([inputs])
        writer.expected(0, (128, 2048), "float32")[:] = inputs / (1 + np.exp(-inputs.astype(np.float64)))
        writer.finish(
            [((128, 2048), "float32")],
            {
                "seed": 0,
                "variant": "own",
                "floors": [NONE.plain()],
                "seconds": 0.0,
                "squares": None,
                "pieces": [one.plain() for one in pieces_of(loaded, "own", 0)],
                "least": list(astuple(least_tolerance(loaded, "own"))),
            },
        )
        published = begun.publish()
    assert published is not None
    data, lock = published
    os.close(lock)
    return data


def right(loaded: Workload) -> Any:
    (inputs,) = make_inputs(loaded, 0)
    return (inputs / (1 + np.exp(-inputs))).astype(np.float32)


async def test_each_answer_of_the_simulator_becomes_an_opinion(machine: Machine, tmp_path: Path) -> None:
    loaded = load_workload(small_silu(tmp_path))
    data, good = data_for(loaded, tmp_path), right(loaded)
    wrong, lost = good.copy(), good.copy()
    wrong[0] *= 1.5
    lost[3, 5] = np.nan
    cases: dict[str, tuple[dict[str, Any], str, str]] = {
        "right": ({"outputs": machine.array("right", good), "warns": "bank reused", "arguments": 1, "lnc": 1}, "", ""),
        "wrong": ({"outputs": machine.array("wrong", wrong)}, "outputs", "relative L2 error"),
        "lost": ({"outputs": machine.array("lost", lost)}, "outputs", "1 NaN"),
        "type": ({"outputs": machine.array("type", good.astype(np.float16))}, "output_dtype", "float16"),
        "shape": ({"outputs": machine.array("shape", good[:64])}, "output_shape", "(64, 2048)"),
        "two": ({"outputs": [*machine.array("a", good), *machine.array("b", good)]}, "output_count", "2 outputs"),
        "refused": ({"raises": "ValueError", "message": "Partition step 4 must equal"}, "compiler", "Partition step"),
        "object": ({"outputs": machine.array("object", np.zeros((128, 2048), "S4"))}, "outputs", ""),
        "crashes": ({"crashes": True}, "", "without an answer"),
        "jailed": ({"raises": "PermissionError", "message": "[Errno 13] Permission denied: '/proc/stat'"}, "", "jail"),
    }
    async with judging(machine, tmp_path) as asked:
        for name, (answer, rule, message) in cases.items():
            text = CURRENT + f"# {name}\n"
            machine.answer(text, **answer)
            (found,) = await asked.ask(Kernel(text, "nki"), loaded, "trn2", data)
            assert (found.stage, found.judge) == ("simulate", "nki 0.6.0+standin"), name
            refusal = found.refusal
            if rule:
                assert refusal is not None and refusal.rule == rule and message in refusal.message, (name, found)
                assert "refuses what acceld accepts" in found.text
            elif message:
                assert refusal is None and message in found.silence, (name, found)
            else:
                assert refusal is None and not found.silence, (name, found)
                assert found.warnings == ("bank reused",) and found.rel_l2 is not None and found.rel_l2 < 1e-6
        unknown = await asked.ask(Kernel(CURRENT, "nki"), loaded, "trn2", data)
        assert unknown[0].refusal is not None, "the stand-in answers only what is recorded"


@pytest.mark.slow
@pytest.mark.parametrize("version", NKI_VERSIONS)
async def test_each_version_of_the_package_is_asked_under_its_name(
    version: str, machine: Machine, tmp_path: Path
) -> None:
    asked_of = Machine(tmp_path / version, version=version)
    loaded = load_workload(small_silu(tmp_path))
    data, outputs = data_for(loaded, tmp_path), asked_of.array("right", right(loaded))
    asked_of.answer(CURRENT, outputs=outputs, lnc=2)
    asked_of.answer(OTHER, raises="TypeError", message="'operand0' must be float32")
    async with judging(asked_of, tmp_path) as asked:
        (opinion,) = await asked.ask(Kernel(CURRENT, "nki", lnc=2), loaded, "trn2", data)
        assert (opinion.judge, opinion.refusal, opinion.silence) == (f"nki {version}.0+standin", None, "")
        assert bool(opinion.warnings) == (version >= "0.7"), "0.7 says that brackets end"
        (opinion,) = await asked.ask(Kernel(OTHER, "nki"), loaded, "trn2", data)
        assert opinion.refusal is not None and "float32" in opinion.refusal.message


async def test_a_package_from_before_the_simulator_gives_no_answer_and_says_why(
    machine: Machine, tmp_path: Path
) -> None:
    loaded = load_workload(small_silu(tmp_path))
    async with judging(Machine(tmp_path / "old", version="0.2"), tmp_path) as asked:
        (opinion,) = await asked.ask(Kernel(CURRENT, "nki"), loaded, "trn2", data_for(loaded, tmp_path))
        assert opinion.refusal is None and opinion.judge == "nki 0.2.0+standin"
        assert "simulate" in opinion.silence


async def test_a_simulator_that_hangs_gives_no_answer(machine: Machine, tmp_path: Path) -> None:
    exchanges = {CompileJail.OFF: unjailed}
    machine.answer(CURRENT, hangs=True)
    with pytest.raises(DeadlineError):
        await Simulator(str(machine.python), exchanges, 3.0).run(Kernel(CURRENT, "nki"), [1], "trn2")


async def test_two_kernels_of_one_size_are_never_simulated_at_one_path(machine: Machine) -> None:
    assert len(OTHER) == len(CURRENT) and OTHER != CURRENT
    simulator = Simulator(str(machine.python), {CompileJail.OFF: unjailed}, 60.0)
    for number, text in enumerate((CURRENT, OTHER)):
        machine.answer(text, outputs=machine.array(f"out{number}", np.full((2, 2), number, np.float32)))
        (found,), _ = await simulator.run(Kernel(text, "nki"), [3], "trn2")
        assert (found == number).all()


async def test_a_simulator_that_gives_wrong_sums_is_not_asked(machine: Machine, tmp_path: Path) -> None:
    loaded = load_workload(small_silu(tmp_path))
    machine.answer(canary.kernel("nki", 1).text, outputs=machine.array("zeros", np.zeros((128, 64), np.float32)))
    async with judging(machine, tmp_path) as asked:
        (found,) = await asked.ask(Kernel(CURRENT, "nki"), loaded, "trn2", data_for(loaded, tmp_path))
    assert "wrong sums" in found.silence and found.refusal is None


async def test_the_compiler_is_asked_after_the_simulator_and_without_a_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acceld.devices.neuron.tools.detection.VENVS", tmp_path / "none")
    monkeypatch.setattr("acceld.devices.neuron.tools.detection.HOME", lambda: tmp_path / "none")
    held = tmp_path / "held" / "neuronx_cc-2.27.1+standin.dist-info"
    held.mkdir(parents=True)
    (held / "METADATA").write_text("Metadata-Version: 2.1\nName: neuronx-cc\nVersion: 2.27.1+standin\n")
    (held / "RECORD").write_text("neuronxcc/driver.py,,\n")
    machine = Machine(tmp_path, tmp_path / "held", STANDIN / "driver")
    loaded = load_workload(small_silu(tmp_path))
    data, outputs = data_for(loaded, tmp_path), machine.array("right", right(loaded))
    wide = CURRENT.replace("(128, 512)", "(256, 512)")
    for text in (CURRENT, wide):
        machine.answer(text, outputs=outputs)
    async with judging(machine, tmp_path) as asked:
        found = await asked.ask(Kernel(CURRENT, "nki"), loaded, "trn2", data)
        assert [(one.stage, one.refusal, one.silence) for one in found] == [
            ("simulate", None, ""),
            ("compile", None, ""),
        ]
        refused = await asked.ask(Kernel(wide, "nki"), loaded, "trn2", data)
        assert [one.refusal.rule if one.refusal else "" for one in refused] == ["", "partition_limit"]


async def test_a_kernel_that_the_simulator_refuses_ends_with_its_rule_and_message(
    machine: Machine, tmp_path: Path
) -> None:
    folder = small_silu(tmp_path)
    loaded = load_workload(folder)
    machine.answer(CURRENT, outputs=machine.array("right", right(loaded)))
    machine.answer(OTHER, raises="TypeError", message="'operand0' must be float32")
    async with started(SimulatedEvaluator(machine.config, tmp_path / "state")) as evaluator:

        async def evaluated(text: str, gate: Gate) -> Any:
            request = EvaluationRequest(Kernel(text, "nki", trusted=True), "small_silu", "trn2", gate=gate)
            return await evaluator.evaluate(dataclasses.replace(request, workload_folder=str(folder)))

        passed = await evaluated(CURRENT, Gate.STRICT)
        assert passed.status is Status.PASSED, passed.failure
        (opinion,) = passed.profile.details[RULE]
        assert (opinion["stage"], opinion["refused"]) == ("simulate", "")
        assert any("accepts the kernel, relative L2" in note for note in passed.profile.notes)
        assert (await evaluated(OTHER, Gate.SEARCH)).status is Status.PASSED, "not asked at the search gate"
        refused = await evaluated(OTHER, Gate.STRICT)
        assert refused.status is Status.COMPILE_ERROR
        assert refused.failure.rule == RULE and "'operand0' must be float32" in refused.failure.message


def test_without_the_package_nobody_is_asked_unless_that_is_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acceld.devices.neuron.tools.detection.VENVS", tmp_path / "none")
    monkeypatch.setattr("acceld.devices.neuron.tools.detection.HOME", lambda: tmp_path / "none")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    nki_version.cache_clear()
    report = SandboxReport(Level.L4, (), ())
    try:
        assert find_judge(EvaluateConfig(), tmp_path, report) is None
        with pytest.raises(DeviceError, match="required") as caught:
            find_judge(EvaluateConfig(second_opinion="required"), tmp_path, report)
        assert "second_python" in caught.value.hint
        named = EvaluateConfig(second_python="/some/python", second_opinion="off")
        assert find_judge(named, tmp_path, report) is None
        assert find_judge(dataclasses.replace(named, second_opinion="auto"), tmp_path, report) is not None
    finally:
        nki_version.cache_clear()


async def test_the_trial_says_if_the_simulator_works(machine: Machine, tmp_path: Path) -> None:
    tools = Toolchain(str(machine.python), sys.executable, "", tool(tmp_path, "neuron-ls"))
    found = NeuronTools((), (), "", (), "")
    exchanges = {CompileJail.OFF: unjailed}
    tried = Trial(tools, found, exchanges, api="nki", target="trn2", folder=tmp_path, named={"ACCELD_STANDIN": "1"})
    assert not await tried.run(), "there is no compiler"
    (step,) = (one for one in tried.report["steps"] if one["name"] == "simulate")
    assert step["result"] == "jail off"
    told = {one.name: one for one in advice(json.loads(scrubbed(tried.report)))}
    assert (told["simulate"].state, told["simulate"].text) == ("ok", "nki.simulate works in jail off")


def test_an_opinion_is_one_line() -> None:
    refusal = Opinion("compile", "neuronx-cc 2.27", 1.0, refusal=Failure("partition_limit", "256 rows"))
    assert refusal.text == "neuronx-cc 2.27 (compile) refuses what acceld accepts: partition_limit: 256 rows"
    assert Opinion("simulate", "nki 0.6", 1.0, silence="late").text == "nki 0.6 (simulate) gave no answer: late"
