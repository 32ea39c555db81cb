"""On the stand-in for a Trainium machine, acceld learns which cores disturb each other, and that screening can be
wrong.
"""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest

from acceld.config import Config, DevicesConfig, EvaluateConfig, PathsConfig
from acceld.devices.neuron.interference import learn
from acceld.devices.neuron.learned import isolation_of
from acceld.devices.neuron.runtime.cores import Isolation
from acceld.devices.neuron.screen import SAMPLE_ONE_IN
from acceld.evaluate.interface import EvaluationRequest
from acceld.model import Kernel, Status
from tests.acceld.devices.neuron.test_neuron_evaluator import NARROWEST, evaluating
from tests.standin_neuron.machine import KERNEL, small_silu, stand_in_machine

pytestmark = pytest.mark.slow
FAST = NARROWEST.replace("def kernel(", "def kernel_fast(")
"""Predicted slower than its parent, and ten times as fast on the stand-in."""


@pytest.mark.parametrize(("scenario", "isolation"), [("shared memory", Isolation.PAIR), ("", Isolation.CORE)])
async def test_the_isolation_group_is_learned_from_latencies_beside_busy_neighbors(
    scenario: str, isolation: Isolation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = stand_in_machine(tmp_path, scenario=scenario)
    monkeypatch.setenv("PATH", str(machine.folder), prepend=":")
    small_silu(tmp_path)
    devices = DevicesConfig(compile_python=machine.compile_python, runner_python=machine.runner_python)
    config = Config(evaluate=EvaluateConfig(slots=1), devices=devices, paths=PathsConfig(workloads=(str(tmp_path),)))
    state = tmp_path / "state"
    found = await learn("neuron_legacy", config, state, "small_silu")
    assert found.isolation is isolation
    assert found.slowdown["the same HBM"] == pytest.approx(1.5 if scenario else 1.0, rel=0.01)
    assert found.slowdown["another chip"] == pytest.approx(1.0, rel=0.01)
    assert await asyncio.to_thread(isolation_of, state) is isolation


def _texts(sampled: bool, count: int) -> list[str]:
    """Return kernels that screening would drop: those in run 1's sample, or those outside of it."""
    found: list[str] = []
    number = 0
    while len(found) < count:
        number += 1
        text = f"# {number}\n{FAST}"
        digest = hashlib.sha256(f"1\0{Kernel(text, 'nki_legacy').sha256}".encode()).digest()
        if (int.from_bytes(digest[:4], "big") % SAMPLE_ONE_IN == 0) is sampled:
            found.append(text)
    return found


async def test_wins_among_the_sample_of_what_screening_drops_are_reported_and_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, parent = str(small_silu(tmp_path)), Kernel(KERNEL, "nki_legacy")
    reported: list[tuple[int, str, str]] = []

    async def notice(run: int, level: str, text: str) -> None:
        reported.append((run, level, text))

    def asking(kernel: Kernel, number: int, *, screen: bool = True) -> EvaluationRequest:
        wanted = {"chip": "trn1", "backend": "neuron_legacy", "run": 1, "workload_folder": folder}
        return EvaluationRequest(kernel, "small_silu", candidate=number, against=(parent,), screen=screen, **wanted)  # type: ignore[arg-type]

    async with evaluating(tmp_path, monkeypatch, on_notice=notice) as evaluator:
        assert (await evaluator.evaluate(asking(parent, 1, screen=False))).status is Status.PASSED
        (dropped,) = _texts(False, 1)
        first = await evaluator.evaluate(asking(Kernel(dropped, "nki_legacy"), 2))
        assert first.status is Status.UNTESTED and first.profile is not None and first.profile.latency_us is None
        for number, text in enumerate(_texts(True, 2), 3):
            found = await evaluator.evaluate(asking(Kernel(text, "nki_legacy"), number))
            assert found.status is Status.PASSED and found.profile is not None
            assert found.profile.details["screen"] | {"predicted_ratio": 0, "band_percent": 0} == {
                "predicted_ratio": 0,
                "band_percent": 0,
                "measured": True,
                "wrong": True,
            }
        assert evaluator.statistics()["screen"] == {"on": False, "dropped": 1, "sampled": 2, "wrong": 2}
        assert [text for _, _, text in reported if text.startswith("screening")] == [
            "screening would have dropped c3, which is faster than its parent",
            "screening would have dropped c4, which is faster than its parent",
            "screening is off: 1 dropped, 2 measured nevertheless, 2 of the measured candidates were wins",
        ]
        again = await evaluator.evaluate(asking(Kernel(_texts(False, 2)[1], "nki_legacy"), 5))
        assert again.status is Status.PASSED, "measured, since screening is off"
