"""Without a reference, the float64 execution of the workload's own kernel is the oracle."""

from __future__ import annotations

from pathlib import Path

import pytest

from acceld import drafts
from acceld.config import EvaluateConfig
from acceld.errors import WorkloadError
from acceld.evaluate.interface import EvaluationRequest
from acceld.evaluate.simulated.evaluator import SimulatedEvaluator
from acceld.model import Gate, Kernel, Status

KERNEL = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(64)[None, :]
    nl.store(out[p, f], nl.add(nl.load(a[p, f]), nl.load(b[p, f])))
    return out
"""


def folder_of(path: Path, text: str) -> Path:
    arguments = [drafts.parse_argument(f"{name}=128x64:float32", 0) for name in "ab"]
    outputs = [drafts.DraftOutput("out", (128, 64), "float32")]
    toml = drafts.workload_toml(
        "mine", arguments, outputs, baselines={"nki_legacy": "kernel_legacy.py"}, reference=None
    )
    path.mkdir()
    (path / "workload.toml").write_text(toml, encoding="utf-8")
    (path / "kernel_legacy.py").write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("change", "status"),
    [(("", ""), Status.PASSED), (("nl.add", "nl.subtract"), Status.INCORRECT_NUMERICAL)],
    ids=["the same", "another operation"],
)
async def test_candidates_are_held_against_the_kernel_itself(
    tmp_path: Path, change: tuple[str, str], status: Status
) -> None:
    folder = folder_of(tmp_path / "mine", KERNEL)
    evaluator = SimulatedEvaluator(EvaluateConfig(slots=1, memory_gib=2.0), tmp_path / "state")
    await evaluator.start()
    try:
        kernel = Kernel(KERNEL.replace(*change), "nki_legacy", trusted=True)
        request = EvaluationRequest(kernel, "mine", "trn1", workload_folder=str(folder), gate=Gate.STRICT)
        found = await evaluator.evaluate(request)
    finally:
        await evaluator.stop(1.0)
    assert found.status is status, found.failure
    assert found.correctness is not None
    assert not found.correctness.has_reference or status is not Status.PASSED


async def test_a_kernel_that_can_not_be_traced_can_not_be_an_oracle(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "mine", KERNEL.replace("nl.add", "nl.ad"))
    evaluator = SimulatedEvaluator(EvaluateConfig(slots=1, memory_gib=2.0), tmp_path / "state")
    await evaluator.start()
    try:
        request = EvaluationRequest(
            Kernel(KERNEL, "nki_legacy", trusted=True), "mine", "trn1", workload_folder=str(folder)
        )
        with pytest.raises(WorkloadError, match=r"stand in for a reference: line 11.*nl\.ad|language\.ad"):
            await evaluator.evaluate(request)
    finally:
        await evaluator.stop(1.0)
