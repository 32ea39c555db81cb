"""``acceld profile`` takes the latency from a running daemon, whose tracer is already loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acceld.cli.main import main

WORDS = ["profile", "mine.py", "--workload", "silu", "--api", "nki_legacy", "--latency-only", "--json"]


@pytest.fixture
def kernel(folder: Path) -> None:
    """Write a file for which the daemon's scripted evaluator finds 444 us, and which is no kernel."""
    (folder / "mine.py").write_text("latency\n444.0\n")


def test_a_daemon_is_asked_for_a_latency(kernel: None, daemon: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(WORDS) == 0
    assert json.loads(capsys.readouterr().out)["latency_us"] == 444.0


def test_without_a_daemon_the_latency_is_found_here(kernel: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(WORDS) == 7
    assert json.loads(capsys.readouterr().out)["latency_us"] is None
