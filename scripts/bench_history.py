"""Measure queries of a history with a million candidates: saved queries, conditions over runs, full-text
search.

``make bench-history`` runs this; ``--candidates 100000`` makes a smaller history. One evaluation in fifty
repeats another one's work. The rows are made by SQL, a hundred times faster than the store writes them. Stored
totals are then computed as ``acceld doctor database`` does it.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from acceld.store.connection import connect_reader
from acceld.store.database import Store
from acceld.store.maintenance import rebuild_totals
from acceld.store.reads import history, listing

A_RUN = 400
"""Number of candidates in each run."""
TRIES = 5

RUNS = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :runs)
INSERT INTO runs (id, name, workload, workload_folder, chip, api, backend, proposer, preset, seed, search, state,
  iteration, baseline, best, baseline_latency_us, best_latency_us, speedup, created_at, started_at, ended_at)
SELECT i, 'run ' || i, 'workload_' || (i % 40), '', CASE i % 3 WHEN 0 THEN 'trn1' ELSE 'trn2' END, 'nki_legacy',
  'simulator', CASE i % 2 WHEN 0 THEN 'rules' ELSE 'llm' END, 'standard', i, '{"iterations": 8}', 'finished', 8,
  (i - 1) * :each + 1, (i - 1) * :each + 1 + i % :each, 1000.0, 1000.0 / (1 + i % 17 / 10.0), 1 + i % 17 / 10.0,
  1.7e9 + i * 600, 1.7e9 + i * 600, 1.7e9 + i * 600 + 500 FROM n"""

PLANS = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :plans)
INSERT INTO plans (id, run, iteration, parent, number, title, text, change_class, rule, line, insights, data, created_at)
SELECT i, (i - 1) / (:each / 2) + 1, i % 8 + 1, ((i - 1) / (:each / 2)) * :each + 1, i,
  'plan ' || i, 'hoist load ' || (i % 997) || ' of tile ' || (i % 31), 'mixed',
  CASE ((i - 1) / (:each / 2) + 1) % 2 WHEN 0 THEN 'rule_' || (i % 19) ELSE '' END, i % 60, '[]', '{}', 1.7e9 + i FROM n"""

CANDIDATES = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :candidates)
INSERT INTO candidates (id, run, iteration, parent, plan, source, filename, trusted, place, plan_number,
  attempt_number, fix_number, state, evaluation, status, gate, latency_us, speedup, parent_speedup, created_at)
SELECT i, (i - 1) / :each + 1, i % 8, CASE (i - 1) % :each WHEN 0 THEN NULL ELSE ((i - 1) / :each) * :each + 1 END,
  CASE (i - 1) % :each WHEN 0 THEN NULL ELSE (i + 1) / 2 END, 'source', 'kernel.py', 0, 0, i, 0, 0, 'done', i,
  CASE WHEN i % 5 < 3 THEN 'passed' WHEN i % 5 = 3 THEN 'compile_error' ELSE 'incorrect_numerical' END, 'search',
  500.0 + i % 1000, 1000.0 / (500.0 + i % 1000), 1000.0 / (500.0 + i % 1000), 1.7e9 + i FROM n"""

EVALUATIONS = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :candidates)
INSERT INTO evaluations (id, key, workload, backend, chip, status, gate, source_sha256, program_sha256, failure_rule,
  failure_message, latency_us, sandbox_level, seconds, log, reused, created_at)
SELECT i, 'key ' || (i * 50 / 51), 'workload_' || (((i - 1) / :each + 1) % 40), 'simulator',
  CASE ((i - 1) / :each + 1) % 3 WHEN 0 THEN 'trn1' ELSE 'trn2' END,
  CASE WHEN i % 5 < 3 THEN 'passed' WHEN i % 5 = 3 THEN 'compile_error' ELSE 'incorrect_numerical' END, 'search',
  'source', 'program ' || i, CASE WHEN i % 5 >= 3 THEN 'failure_' || (i % 23) END,
  CASE WHEN i % 5 >= 3 THEN 'the tile ' || (i % 997) || ' is too wide' END,
  500.0 + i % 1000, 'L3', '{}', '', 0, 1.7e9 + i FROM n"""

CALLS = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :candidates)
INSERT INTO llm_calls (id, key, run, iteration, role, provider, model, prompt_sha256, system_sha256, user_sha256,
  parameters, started_at, ended_at, outcome, input_tokens, output_tokens, cost_usd, latency_s)
SELECT i, 'call ' || i, (i - 1) / :each + 1, i % 8, CASE i % 3 WHEN 0 THEN 'planner' ELSE 'executor' END, 'openai',
  'model-' || (i % 5), '', 'text', 'text', '{}', 1.7e9 + i, 1.7e9 + i + 9, 'answered', 4000, 900, 0.002, 9.0
FROM n WHERE ((i - 1) / :each + 1) % 2 = 1"""

INSIGHTS = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :runs * 4)
INSERT INTO insights (id, run, iteration, slow_candidate, fast_candidate, kind, title, strategy, slow, fast, speedup,
  chip, api, sdk, dtype, bound, tags, source, novelty, uses, wins, losses, pinned, muted, withdrawn, created_at, changed_at)
SELECT i, (i - 1) / 4 + 1, 1, 1, 2, 'positive', 'insight ' || i, 'widen tiles ' || (i % 211), '',
  '', 1.2, 'trn1', 'nki_legacy', '', 'float32', '', '[]', 'simulated', 1.0, i % 13, i % 7, i % 5, 0, 0, 0, 1.7e9, 1.7e9
FROM n"""


def fill(path: Path, candidates: int) -> None:
    """Write a history with ``candidates`` candidates to ``path``."""
    asyncio.run(_made(path))
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("PRAGMA synchronous = OFF")
    values = {"candidates": candidates, "runs": candidates // A_RUN, "plans": candidates // 2, "each": A_RUN}
    for sql in (
        "INSERT INTO texts VALUES ('text', 'x')",
        "INSERT INTO sources VALUES ('source', 'text', 'nki_legacy', '', '[]', 1, '{}', 0)",
        RUNS,
        PLANS,
        CANDIDATES,
        EVALUATIONS,
        CALLS,
        INSIGHTS,
        "INSERT INTO run_totals (run) SELECT id FROM runs",
    ):
        connection.execute(sql, values if ":" in sql else {})
    connection.close()
    asyncio.run(_totaled(path))


async def _made(path: Path) -> None:
    await (await asyncio.to_thread(Store.open, path)).close()


async def _totaled(path: Path) -> None:
    store = await asyncio.to_thread(Store.open, path)
    await store.change(rebuild_totals)
    await store.close()


def measured(path: Path) -> dict[str, list[float]]:
    """Return, as a dict by query, the seconds of ``TRIES`` executions, each on a new connection."""
    where: dict[str, dict[str, Any]] = {
        "runs, newest": {},
        "runs, --where": {"where": "speedup > 1.2 and cost_usd < 3", "sort": "-speedup"},
        "runs, --workload": {"workload": "workload_7"},
        "runs, --model": {"model": "model-3"},
    }
    asked: dict[str, Callable[[sqlite3.Connection], object]] = {
        f"--saved {name}": partial(history.saved, name=name) for name in history.SAVED
    }
    asked |= {name: partial(history.run_query, **words) for name, words in where.items()}
    asked["--search words"] = lambda c: listing.search(c, "tile 97", 50)
    found: dict[str, list[float]] = {}
    for name, ask in asked.items():
        for _ in range(TRIES):
            connection = connect_reader(path)
            started = time.perf_counter()
            ask(connection)
            found.setdefault(name, []).append(time.perf_counter() - started)
            connection.close()
    return found


def main() -> None:
    """Make the history, measure the queries, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="acceld-") as folder:
        path = Path(folder) / "acceld.db"
        started = time.perf_counter()
        fill(path, arguments.candidates)
        size = path.stat().st_size / 1e6
        print(f"{arguments.candidates:,} candidates, {size:,.0f} MB, made in {time.perf_counter() - started:.0f} s")
        for name, seconds in measured(path).items():
            middle, most = statistics.median(seconds) * 1000, max(seconds) * 1000
            print(f"{name:<26} {middle:8.1f} ms  at most {most:8.1f} ms")


if __name__ == "__main__":
    main()
