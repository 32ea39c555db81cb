"""``acceld profile`` takes the latency from a running daemon, whose tracer is already loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acceld.cli.commands.profile import record
from acceld.cli.main import main
from acceld.config import Config
from acceld.daemon.outside import answer, request_of
from acceld.evaluate.interface import started
from acceld.evaluate.simulated.evaluator import SimulatedEvaluator
from acceld.store.rows import dump
from acceld.watch.answers import evaluation_from

SUITE = Path(__file__).parents[2] / "adversarial" / "workloads"
WORDS = ["profile", "mine.py", "--workload", "silu", "--api", "nki_legacy", "--latency-only", "--json"]


@pytest.fixture
def kernel(folder: Path) -> None:
    """Write a file for which the daemon's scripted evaluator finds 444 us, and which is no kernel."""
    (folder / "mine.py").write_text("latency\n444.0\nimport neuronxcc.nki\n")


def test_a_daemon_is_asked_for_a_latency(kernel: None, daemon: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(WORDS) == 0
    assert json.loads(capsys.readouterr().out)["latency_us"] == 444.0


def test_without_a_daemon_the_latency_is_found_here(kernel: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(WORDS) == 7
    assert json.loads(capsys.readouterr().out)["latency_us"] is None


def test_a_daemon_is_asked_about_a_kernel_with_bare_arguments_too(
    kernel: None, daemon: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", "mine.py", "--arg", "128x512:float32", "--api", "nki_legacy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["latency_us"] == 444.0


async def test_what_a_daemon_answers_prints_as_what_is_found_here(tmp_path: Path) -> None:
    kernel = {"text": (SUITE / "st_matmul" / "kernel_legacy.py").read_text(), "api": "nki_legacy"}
    shapes = [{"shape": [256, 256], "dtype": "float32"}, {"shape": [256, 512], "dtype": "float32"}]
    for asked in ({"kernel": kernel, "arguments": shapes}, {"kernel": kernel, "arguments": shapes[:1]}):
        request = request_of(asked, Config())
        async with started(SimulatedEvaluator(Config().evaluate, tmp_path)) as evaluator:
            here = await evaluator.evaluate(request)
        answered = evaluation_from(json.loads(dump(answer(asked, request, here))))
        told, found = (json.dumps(record(one, None, request.chip, request.kernel)) for one in (answered, here))
        assert told == found
