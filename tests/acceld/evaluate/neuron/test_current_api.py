"""Kernels of the package nki on stand-ins for each way its versions compile, with one and two cores in a logical one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from acceld.config import DevicesConfig, EvaluateConfig
from acceld.errors import DeviceError
from acceld.evaluate.base import EvaluationRequest
from acceld.evaluate.evaluator import Judge
from acceld.evaluate.neuron.judge import NeuronJudge
from acceld.model import Gate, Kernel, Source, Status
from tests.standin_neuron.machine import (
    CURRENT,
    CURRENT_LNC2,
    CURRENT_NARROW,
    StandInMachine,
    small_silu,
    stand_in_machine,
)

ONE = EvaluateConfig(slots=1, check_s=5.0)
ROUTES = {"current": "nki.framework.compiled", "driver": "nki.compiler.frontend", "jit": "nki.jit"}


@asynccontextmanager
async def judging(machine: StandInMachine, state: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[NeuronJudge]:
    monkeypatch.setenv("PATH", str(machine.folder), prepend=":")
    simulator = Judge(ONE, state)
    await simulator.start()

    async def predicts() -> Judge:
        return simulator

    devices = DevicesConfig(compile_python=machine.compile_python, runner_python=machine.runner_python)
    judge = NeuronJudge("neuron", ONE, devices, state, predicts)
    try:
        await judge.start()
        yield judge
    finally:
        await judge.stop(0.0)
        await simulator.stop(0.0)


def asking(folder: Path, text: str, chip: str, lnc: int, gate: Gate = Gate.SEARCH, **more: object) -> EvaluationRequest:
    wanted = {"chip": chip, "backend": "neuron", "workload_folder": str(folder), "gate": gate, "run": 1}
    return EvaluationRequest(Kernel(text, "nki", lnc=lnc), "small_silu", **(wanted | more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("compiler", "chip", "lnc"),
    [
        ("jit", "trn2", 2),
        pytest.param("current", "trn2", 1, marks=pytest.mark.slow),
        pytest.param("driver", "trn3", 2, marks=pytest.mark.slow),
        pytest.param("driver", "trn3", 1, marks=pytest.mark.slow),
    ],
)
async def test_a_kernel_goes_from_source_to_turns_with_its_parent(
    compiler: str, chip: str, lnc: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = stand_in_machine(tmp_path, compiler=compiler, lnc=lnc)
    folder = small_silu(tmp_path, lnc=lnc)
    best = CURRENT if lnc == 1 else CURRENT_LNC2
    slower = (
        CURRENT_NARROW
        if lnc == 1
        else best.replace("512", "256").replace("range(2)", "range(4)").replace("(2 *", "(4 *")
    )
    async with judging(machine, tmp_path / "state", monkeypatch) as judge:
        parent = Kernel(slower, "nki", lnc=lnc)
        found = await judge.evaluate(asking(folder, best, chip, lnc, Gate.STRICT, against=(parent,)))
        assert found.status is Status.PASSED, found.failure
        profile = found.profile
        assert profile is not None
        assert (profile.chip, profile.api, profile.details["lnc"]) == (chip, "nki", lnc)
        assert (profile.source, profile.method) == (Source.SIMULATED, "stand-in for nrtpy device")
        assert profile.details["simulated_latency_us"] == pytest.approx(profile.latency_us, rel=0.01)
        (pair,) = profile.details["paired"]
        assert pair["win"] and pair["against"] == parent.sha256
        record = Path(profile.details["neff"]).with_name("record.json").read_text()
        assert f'"route": "{ROUTES[compiler]}' in record
        wrong = await judge.evaluate(asking(folder, best.replace("operand0=1.0", "operand0=1.5"), chip, lnc))
        assert wrong.status is Status.INCORRECT_NUMERICAL
        wide = await judge.evaluate(asking(folder, best.replace("(128, 512)", "(256, 512)"), chip, lnc))
        assert wide.status is Status.COMPILE_ERROR and wide.failure is not None and wide.failure.line == 10
        assert {use["core"] for use in machine.uses()} <= {0, 1, 2, 3}
        assert judge.statistics()["devices"]["lnc"] == lnc  # type: ignore[index]


@pytest.mark.slow
async def test_a_kernel_of_one_core_runs_on_half_of_a_logical_core_and_one_of_two_is_refused_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = stand_in_machine(tmp_path, compiler="jit", lnc=2)
    folder = small_silu(tmp_path)
    async with judging(machine, tmp_path / "state", monkeypatch) as judge:
        found = await judge.evaluate(asking(folder, CURRENT, "trn2", 1))
        assert found.status is Status.PASSED, found.failure
        used = {use["core"] for use in machine.uses() if use["entry"] == "kernel"}
        assert used <= {0, 2, 4, 6}, "the first physical core of a logical one"
    (tmp_path / "one").mkdir()
    small = stand_in_machine(tmp_path / "one", compiler="jit", lnc=1)
    async with judging(small, tmp_path / "one" / "state", monkeypatch) as judge:
        with pytest.raises(DeviceError, match="2 physical cores"):
            await judge.evaluate(asking(folder, CURRENT_LNC2, "trn2", 2))
