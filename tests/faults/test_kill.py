"""kill -9 loses nothing that was acknowledged, and a run goes on where it was (quick forms)."""

from __future__ import annotations

from pathlib import Path

from tests.faults.harness import kill_daemons, kill_writers


def test_killed_writers_lose_no_acknowledged_row(tmp_path: Path) -> None:
    result = kill_writers(tmp_path, 5)
    assert result.acknowledged > 100
    assert (result.lost, result.damaged) == (0, 0)
    assert result.extra <= 4  # one for each of the four that were writing


def test_killed_daemons_go_on_and_evaluate_nothing_twice(tmp_path: Path) -> None:
    result = kill_daemons(tmp_path, 2)
    assert (result.state, result.repeated, result.problems) == ("finished", 0, ())
