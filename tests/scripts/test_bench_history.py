"""The history that the benchmark of queries makes follows the tables, and every query answers on it."""

from __future__ import annotations

from pathlib import Path

from scripts.bench_history import A_RUN, fill, measured


def test_a_small_history_is_made_and_every_query_answers(tmp_path: Path) -> None:
    fill(tmp_path / "acceld.db", 2 * A_RUN)
    seconds = measured(tmp_path / "acceld.db")
    assert {"runs, newest", "--search words"} < set(seconds)
    assert len(set(map(len, seconds.values()))) == 1
