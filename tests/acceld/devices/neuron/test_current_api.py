"""Kernels of the package nki on stand-ins for each way its versions compile, with one and two cores in a logical one."""

from __future__ import annotations

from pathlib import Path

import pytest

from acceld.errors import DeviceError
from acceld.evaluate.interface import EvaluationRequest
from acceld.model import Gate, Kernel, Source, Status
from tests.acceld.devices.neuron.test_neuron_evaluator import evaluating
from tests.standin_neuron.machine import CURRENT, CURRENT_LNC2, CURRENT_NARROW, machine_in, small_silu

ROUTES = {"current": "nki.framework.compiled", "driver": "nki.compiler.frontend", "jit": "nki.jit"}


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
    folder = small_silu(tmp_path, lnc=lnc)
    best = CURRENT if lnc == 1 else CURRENT_LNC2
    slower = (
        CURRENT_NARROW
        if lnc == 1
        else best.replace("512", "128").replace("range(2)", "range(8)").replace("(2 *", "(8 *")
    )
    async with evaluating(tmp_path, monkeypatch, backend="neuron", compiler=compiler, lnc=lnc) as evaluator:
        parent = Kernel(slower, "nki", lnc=lnc)
        found = await evaluator.evaluate(asking(folder, best, chip, lnc, Gate.STRICT, against=(parent,)))
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
        wrong = await evaluator.evaluate(asking(folder, best.replace("operand0=1.0", "operand0=1.5"), chip, lnc))
        assert wrong.status is Status.INCORRECT_NUMERICAL
        wide = await evaluator.evaluate(asking(folder, best.replace("(128, 512)", "(256, 512)"), chip, lnc))
        assert wide.status is Status.COMPILE_ERROR and wide.failure is not None and wide.failure.line == 10
        assert {use["core"] for use in machine_in(tmp_path).uses()} <= {0, 1, 2, 3}
        assert evaluator.statistics()["devices"]["lnc"] == lnc  # type: ignore[index]


@pytest.mark.slow
async def test_a_kernel_of_one_core_runs_on_half_of_a_logical_core_and_one_of_two_is_refused_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small_silu(tmp_path)
    async with evaluating(tmp_path, monkeypatch, backend="neuron", compiler="jit", lnc=2) as evaluator:
        found = await evaluator.evaluate(asking(folder, CURRENT, "trn2", 1))
        assert found.status is Status.PASSED, found.failure
        used = {use["core"] for use in machine_in(tmp_path).uses() if use["entry"] == "kernel"}
        assert used <= {0, 2, 4, 6}, "the first physical core of a logical one"
    (tmp_path / "one").mkdir()
    async with evaluating(tmp_path / "one", monkeypatch, backend="neuron", compiler="jit") as evaluator:
        with pytest.raises(DeviceError, match="2 physical cores"):
            await evaluator.evaluate(asking(folder, CURRENT_LNC2, "trn2", 2))
