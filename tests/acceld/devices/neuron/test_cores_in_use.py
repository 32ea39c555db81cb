"""Several runs share the stand-in's cores: isolation, interleaving, other programs, canaries, faults."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from acceld.errors import DeviceError
from acceld.evaluate.interface import EvaluationRequest
from acceld.model import Kernel, Status
from tests.acceld.devices.neuron.test_neuron_evaluator import evaluating
from tests.standin_neuron.machine import KERNEL, machine_in, small_silu

POISON = KERNEL.replace("def kernel(", "def kernel_poison(")
pytestmark = pytest.mark.slow


@pytest.fixture
def asking(tmp_path: Path) -> Callable[..., EvaluationRequest]:
    folder = str(small_silu(tmp_path))

    def ask(text: str, run: int = 1) -> EvaluationRequest:
        kernel = Kernel(text, "nki_legacy")
        return EvaluationRequest(kernel, "small_silu", "trn1", "neuron_legacy", run=run, workload_folder=folder)

    return ask


def _statistics(evaluator: Any) -> dict[str, Any]:
    devices = evaluator.statistics()["devices"]
    assert isinstance(devices, dict)
    return devices


async def test_runs_share_cores_and_nothing_stirs_in_the_group_of_a_core_that_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asking: Callable[..., EvaluationRequest]
) -> None:
    async with evaluating(tmp_path, monkeypatch) as evaluator:
        kernels = [f"# {number}\n{KERNEL}" for number in range(6)]
        found = await asyncio.gather(*(evaluator.evaluate(asking(text, 1 + n % 2)) for n, text in enumerate(kernels)))
        assert all(one.status is Status.PASSED for one in found)
        uses = machine_in(tmp_path).holds()
        assert len({use["core"] for use in uses}) > 1
        assert sum(use["what"] == "held to time" for use in uses) >= len(kernels)
        for one, other in combinations(uses, 2):
            same_group = one["core"] // 2 == other["core"] // 2 and one["core"] != other["core"]
            if same_group and "held to time" in (one["what"], other["what"]):
                assert one["to"] <= other["from"] or other["to"] <= one["from"], (one, other)
        shares = _statistics(evaluator)["utilization_by_core"]
        assert sum(share > 0 for share in shares.values()) > 1


async def test_a_strangers_chip_is_left_alone_and_the_stranger_is_named_where_no_other_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asking: Callable[..., EvaluationRequest]
) -> None:
    machine = machine_in(tmp_path)
    async with evaluating(tmp_path, monkeypatch) as evaluator:
        machine.show_processes({"pid": 1, "command": "python train.py"}, device=0)
        assert (await evaluator.evaluate(asking(KERNEL))).status is Status.PASSED
        assert {use["core"] for use in machine.uses() if use["entry"] == "kernel"} <= {2, 3}
        assert _statistics(evaluator)["foreign"] == {0: "1 python train.py"}
    stranger = await asyncio.create_subprocess_exec("sleep", "60", start_new_session=True)
    held = {"pid": stranger.pid, "command": "python train.py"}
    (tmp_path / "again").mkdir()
    with pytest.raises(DeviceError, match=rf"process {stranger.pid} \(python train.py\)"):
        async with evaluating(tmp_path / "again", monkeypatch, cores=(0, 1), holder=held):
            pass
    assert stranger.returncode is None, "it was left alone"
    stranger.kill()
    await stranger.wait()


async def test_a_kernel_that_spoils_two_cores_is_at_fault_and_both_stay_out_of_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asking: Callable[..., EvaluationRequest]
) -> None:
    async with evaluating(tmp_path, monkeypatch) as evaluator:
        found = await evaluator.evaluate(asking(POISON))
        assert (found.status, found.failure and found.failure.rule) == (Status.RUNTIME_ERROR, "device_fault")
        sick = _statistics(evaluator)["out_of_service"]
        assert len(sick) == 2
        assert (await evaluator.evaluate(asking(KERNEL))).status is Status.PASSED
        uses = machine_in(tmp_path).uses()
        assert {use["core"] for use in uses if use["entry"] == "kernel"}.isdisjoint(sick)
        for core in sick:
            there = [use["entry"] for use in uses if use["core"] == core]
            assert there[there.index("kernel_poison") + 1 :][0] == "canary", "a known-good kernel came next"


async def test_after_a_crash_a_known_good_kernel_passes_on_the_core_before_anybody_else_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asking: Callable[..., EvaluationRequest]
) -> None:
    async with evaluating(tmp_path, monkeypatch, cores=(0,)) as evaluator:
        crashed = await evaluator.evaluate(asking(KERNEL.replace("def kernel(", "def kernel_oob(")))
        assert crashed.failure is not None and crashed.failure.rule == "out_of_bounds"
        assert (await evaluator.evaluate(asking(KERNEL))).status is Status.PASSED
        entries = [use["entry"] for use in machine_in(tmp_path).uses()]
        assert entries[entries.index("kernel_oob") + 1 :][:1] == ["canary"]
