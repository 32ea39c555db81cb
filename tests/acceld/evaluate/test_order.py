"""The order of evaluation, on a device that only records its calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from acceld.config import EvaluateConfig
from acceld.errors import DeviceError
from acceld.evaluate.case import Case, Failed, RecentlyUsed
from acceld.evaluate.evaluator import OrderedEvaluator
from acceld.evaluate.interface import EvaluationRequest
from acceld.evaluate.sandbox.jail import Level
from acceld.evaluate.sandbox.ladder import SandboxReport
from acceld.model import Evaluation, Failure, Gate, Kernel, Profile, Source, Status
from acceld.workloads import Workload

HONEST_US, IMPOSSIBLE_US = 1e6, 1e-6
STAGES = ["build", "recall", "measure", "suspicion", "search", "strict", "learn passed", "release"]


class Notebook(OrderedEvaluator[Case]):
    """Records each call of a hook; ``fails`` names the hook that answers with a failure."""

    backend = "notebook"

    def __init__(self, folder: Path, level: Level = Level.L4, fails: str = "") -> None:
        super().__init__(EvaluateConfig(), folder)
        self.report = SandboxReport(level, (), ())
        self.asked: list[str] = []
        self.fails = fails
        self.latency_us = HONEST_US

    def _ask(self, hook: str) -> Failed | None:
        self.asked.append(hook)
        return Failed(Status.RUNTIME_ERROR, Failure(hook, "as told")) if hook == self.fails else None

    async def open(self, report: SandboxReport) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""

    async def case(self, request: EvaluationRequest, loaded: Workload, slot: int) -> Case:
        """Return a plain case."""
        return Case(request, loaded)

    async def build(self, case: Case) -> Failed | None:
        """Record the call."""
        return self._ask("build")

    def recall(self, case: Case) -> Evaluation | None:
        """Record the call; no program is known."""
        self._ask("recall")
        return None

    async def measure(self, case: Case) -> Failed | None:
        """Record the call."""
        case.profile = Profile(Source.SIMULATED, "trn1", "nki_legacy", self.latency_us, "notebook")
        return self._ask("measure")

    def suspicion(self, case: Case) -> Failed | None:
        """Record the call, then compare with the physical floor."""
        return self._ask("suspicion") or super().suspicion(case)

    async def check(self, case: Case, gate: Gate) -> Failed | None:
        """Record the call by the gate's name."""
        return self._ask(gate.value)

    async def learn(self, case: Case, evaluation: Evaluation) -> None:
        """Record the call with the status."""
        self._ask(f"learn {evaluation.status}")

    async def release(self, case: Case) -> None:
        """Record the call."""
        self._ask("release")


def _request(text: str = "", gate: Gate = Gate.STRICT, trusted: bool = False) -> EvaluationRequest:
    return EvaluationRequest(Kernel(text, "nki_legacy", trusted=trusted), "silu", "trn1", gate=gate)


async def test_a_kernel_that_fails_nowhere_passes_every_stage_once(tmp_path: Path) -> None:
    device = Notebook(tmp_path)
    found = await device.evaluate(_request())
    assert (found.status, found.gate) == (Status.PASSED, Gate.STRICT)
    assert device.asked == STAGES


@pytest.mark.parametrize("stage", ["build", "measure", "suspicion", "search", "strict"])
async def test_a_failure_ends_it_at_once_and_the_case_is_freed(tmp_path: Path, stage: str) -> None:
    device = Notebook(tmp_path, fails=stage)
    found = await device.evaluate(_request())
    assert (found.status, found.failure and found.failure.rule) == (Status.RUNTIME_ERROR, stage)
    before = STAGES[: STAGES.index(stage) + 1]
    learned = [] if stage == "build" else ["learn runtime_error"]
    assert device.asked == [*before, *learned, "release"]


async def test_the_gate_says_how_far_it_goes(tmp_path: Path) -> None:
    device = Notebook(tmp_path)
    assert (await device.evaluate(_request(gate=Gate.TIMING))).status is Status.UNTESTED
    assert (await device.evaluate(_request(gate=Gate.SEARCH))).gate is Gate.SEARCH
    assert "strict" not in device.asked
    assert device.asked.count("search") == 1


async def test_a_latency_below_the_physical_floor_is_suspect_before_any_gate(tmp_path: Path) -> None:
    device = Notebook(tmp_path)
    device.latency_us = IMPOSSIBLE_US
    found = await device.evaluate(_request())
    assert (found.status, found.failure and found.failure.rule) == (Status.SUSPECT, "below_floor")
    assert "search" not in device.asked


async def test_what_the_policy_refuses_is_never_built(tmp_path: Path) -> None:
    device = Notebook(tmp_path)
    assert (await device.evaluate(_request("import socket"))).status is Status.REJECTED
    assert (await device.evaluate(_request("def ("))).status is Status.COMPILE_ERROR
    assert device.asked == ["release"] * 2
    assert (await device.evaluate(_request("import socket", trusted=True))).status is Status.PASSED


async def test_without_a_sandbox_only_a_persons_own_kernel_is_built(tmp_path: Path) -> None:
    device = Notebook(tmp_path, Level.L0)
    with pytest.raises(DeviceError, match="no sandbox works here"):
        await device.evaluate(_request())
    assert "build" not in device.asked
    assert (await device.evaluate(_request(trusted=True))).status is Status.PASSED


def test_what_was_used_longest_ago_is_forgotten() -> None:
    recent: RecentlyUsed[int, str] = RecentlyUsed(2)
    assert recent.keep(1, lambda: "one") == "one"
    recent[2] = "two"
    assert recent.keep(1, lambda: "again") == "one"
    recent[3] = "three"
    assert list(recent) == [1, 3]
