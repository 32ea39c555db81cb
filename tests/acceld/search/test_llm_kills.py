"""kill -9 at random moments of a search with a model: no stored answer is ever bought again.

ACCELD_TEST_KILLS sets how often (default 8).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.acceld.llm.server import FAULTS, STATUS_FAULTS, Reply, ScriptedServer

KILLS = int(os.environ.get("ACCELD_TEST_KILLS", "8"))
ROOT = Path(__file__).resolve().parents[3]

AGAIN = """
SELECT count(*) FROM llm_calls first JOIN llm_calls later ON later.key = first.key AND later.id > first.id
WHERE first.outcome = 'answered'
"""


def victim(folder: Path, **environment: str) -> subprocess.Popen[bytes]:
    """Return a process that searches."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.acceld.search.llm_victim", str(folder)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **environment},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"searching\n"
    return process


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process with kill -9."""
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


@pytest.mark.slow
def test_no_stored_answer_is_bought_twice_however_often_the_daemon_is_killed(tmp_path: Path) -> None:
    rng = random.Random(11)
    for _ in range(KILLS):
        process = victim(tmp_path)
        time.sleep(rng.uniform(0.05, 0.6))
        kill(process)
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


@pytest.mark.slow
async def test_no_batch_is_bought_twice_however_often_the_daemon_is_killed(tmp_path: Path) -> None:
    rng = random.Random(5)
    async with ScriptedServer(answer=batch_answer) as server:
        for _ in range(KILLS):
            server.shelf.touched.clear()
            process = await asyncio.to_thread(lambda: victim(tmp_path, BATCH_URL=server.base_url))
            await asyncio.wait_for(server.shelf.touched.wait(), 300)
            await asyncio.sleep(rng.uniform(0.0, 0.8))
            await asyncio.to_thread(kill, process)
        bought = Counter(server.shelf.bought)
    connection = sqlite3.connect(tmp_path / "acceld.db")
    try:
        answered = {key for (key,) in connection.execute("SELECT key FROM llm_calls WHERE outcome = 'answered'")}
        interrupted = connection.execute("SELECT count(*) FROM llm_calls WHERE outcome = 'interrupted'").fetchone()[0]
    finally:
        connection.close()
    assert max(bought.values()) == 1, "every question was bought once"
    assert answered <= set(bought) and len(answered) > KILLS
    print(f"{KILLS} kills: {len(bought)} bought in {len(server.shelf.batches)} batches, {interrupted} never sent")  # noqa: T201


FAULTY = 0.4
"""Share of the requests that fail in one of the kinds of fault."""
PRICE_USD = (1e-6, 10e-6)
CAP_USD = 0.30
RUNS_END = 12
"""Number of kills after which another run begins, if the cap has not ended it before."""


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_a_capped_run_never_exceeds_its_cap_on_the_server_s_count(tmp_path: Path) -> None:
    rng, billed, kinds = random.Random(7), Counter[str](), Counter[str]()

    def answer(body: dict[str, Any]) -> Reply:
        """Return an answer or a fault, billed as a provider would: input and output tokens, whether they arrive or not."""
        kind = rng.choice(FAULTS) if rng.random() < FAULTY else "ok"
        kinds[kind] += 1
        reply = replace(batch_answer(body), kind=kind)
        prompt = sum(len(one["content"]) for one in body["messages"]) // 4
        written = 0 if kind == "reset" else len(reply.text) // 4 + 1
        run = server.seen[-1].headers["authorization"]
        if kind not in STATUS_FAULTS and kind != "html_200":
            billed[run] += round(1e9 * (PRICE_USD[0] * prompt + PRICE_USD[1] * written))
        return replace(reply, input_tokens=prompt)

    server = ScriptedServer(answer=answer)
    kills = runs = ends = 0
    async with server:
        while kills < KILLS:
            runs, ended = runs + 1, False
            folder = tmp_path / f"run{runs}"
            folder.mkdir()
            for _ in range(RUNS_END):
                begin = partial(victim, folder, SPEND_URL=server.base_url, SPEND_KEY=f"run{runs}", CAP_USD=str(CAP_USD))
                before = len(server.seen)
                process = await asyncio.to_thread(begin)
                while len(server.seen) == before and process.poll() is None:  # noqa: ASYNC110  # or the process has ended
                    await asyncio.sleep(0.02)
                try:
                    await asyncio.to_thread(process.wait, rng.uniform(0.0, 1.5))
                    ended = True
                except subprocess.TimeoutExpired:
                    kills += 1
                await asyncio.to_thread(kill, process)
                if ended:
                    ends += 1
                    break
    spent = [count / 1e9 for count in billed.values()]
    assert max(spent) <= CAP_USD
    assert kills >= KILLS and (KILLS < 100 or set(kinds) == {"ok", *FAULTS})
    print(  # noqa: T201 - with -s
        f"{kills} kills, {runs} runs ({ends} ended), {sum(kinds.values())} requests, {len(kinds) - 1} kinds of fault; "
        f"billed at most {max(spent):.4f} USD of {CAP_USD:.2f}"
    )


def batch_answer(body: dict[str, Any]) -> Reply:
    """Return a plan or a kernel that depends on the question."""
    digest = hashlib.sha256(repr(body["messages"]).encode()).hexdigest()
    if "You are the planner" in body["messages"][-1]["content"]:
        return Reply(f"Title: {digest[:8]}\nClass: dma\nInsights: none\n\nDo {digest[:8]}.")
    latency = f"{80 + int(digest[:8], 16) % 40}.{int(digest[8:12], 16)}"
    return Reply(f"```python\ndef kernel(x):\n    return {latency}\n```")
