"""kill -9 at random moments of a search with a model: no stored answer is ever bought again.

ACCELD_TEST_KILLS sets how often (default 8).
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

KILLS = int(os.environ.get("ACCELD_TEST_KILLS", "8"))
ROOT = Path(__file__).resolve().parents[3]

AGAIN = """
SELECT count(*) FROM llm_calls first JOIN llm_calls later ON later.key = first.key AND later.id > first.id
WHERE first.outcome = 'answered'
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_stored_answer_is_bought_twice_however_often_the_daemon_is_killed(tmp_path: Path) -> None:
    rng = random.Random(11)
    for _ in range(KILLS):
        victim = subprocess.Popen(
            [sys.executable, "-m", "tests.acceld.search.llm_victim", str(tmp_path)],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        assert victim.stdout is not None
        assert victim.stdout.readline() == b"searching\n"
        time.sleep(rng.uniform(0.05, 0.6))
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        victim.stdout.close()
    connection = sqlite3.connect(tmp_path / "acceld.db")
    try:
        assert connection.execute(AGAIN).fetchone() == (0,)
        answered = {key for (key,) in connection.execute("SELECT key FROM llm_calls WHERE outcome = 'answered'")}
        candidates = connection.execute("SELECT count(*) FROM candidates").fetchone()[0]
        repeated = connection.execute(
            "SELECT count(*) FROM (SELECT 1 FROM candidates WHERE attempt IS NOT NULL GROUP BY attempt HAVING count(*) > 1)"
        ).fetchone()[0]
    finally:
        connection.close()
    paid = Counter((tmp_path / "paid").read_text().split())
    lost = sum(paid.values()) - len(answered & set(paid))
    assert answered <= set(paid) and len(answered) > KILLS
    assert candidates > KILLS and repeated == 0
    assert lost <= KILLS * 12, "only calls under way when it was killed may be lost"
    print(f"{KILLS} kills: {len(answered)} answers stored, 0 bought again, {lost} lost under way")  # noqa: T201 - with -s
