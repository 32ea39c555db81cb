"""Keep totals (such as candidates by status), so that reading history is fast at any size.

A total changes in the same transaction as the rows that it counts. ``TOTALS`` has the queries that compute
each total from those rows. ``acceld doctor database`` compares their results with the stored totals.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from acceld.store.writer import Transaction

MICRO = 1_000_000


@dataclass(frozen=True, slots=True)
class Total:
    """Some columns of a table of totals: the table, the columns of its key, and the query for the expected content."""

    table: str
    key: tuple[str, ...]
    query: str


def add(tx: Transaction, table: str, key: Mapping[str, Any], amounts: Mapping[str, Any]) -> None:
    """Add ``amounts`` to the row of ``table`` that has ``key``. The row is created if it is missing."""
    names = (*key, *amounts)
    sums = ", ".join(f"{name} = {name} + excluded.{name}" for name in amounts)
    tx.execute(
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) "
        f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {sums}",
        (*key.values(), *amounts.values()),
    )


def is_win(row: Mapping[str, Any] | sqlite3.Row) -> bool:
    """Return True if a row of ``candidates`` passed and is faster than its parent by more than the noise."""
    return row["status"] == "passed" and bool(row["parent_improved"])


def candidate_changed(tx: Transaction, old: sqlite3.Row, new: sqlite3.Row, rule: str, workload: str) -> None:
    """Update the totals after a candidate's row changed from ``old`` to ``new``. Baselines are not counted.

    ``rule`` is the rewrite rule that made the candidate; empty if no rule did.
    """
    if new["parent"] is None:
        return
    run = {"run": new["run"]}
    passed = (new["status"] == "passed") - (old["status"] == "passed")
    wins = is_win(new) - is_win(old)
    add(tx, "run_totals", run, {"evaluated": int(old["status"] is None), "passed": passed, "wins": wins})
    if old["status"] != new["status"]:
        if old["status"] is not None:
            add(tx, "run_statuses", run | {"status": old["status"]}, {"candidates": -1})
            tx.execute("DELETE FROM run_statuses WHERE run = ? AND candidates = 0", (new["run"],))
        add(tx, "run_statuses", run | {"status": new["status"]}, {"candidates": 1})
    if rule:
        amounts = {"candidates": int(old["status"] is None), "passed": passed, "wins": wins}
        add(tx, "rule_totals", {"rule": rule, "workload": workload}, amounts)


def evaluation_written(tx: Transaction, row: Mapping[str, Any], evaluation: int) -> None:
    """Update the totals after a new row of ``evaluations``."""
    passed, latency = int(row["status"] == "passed"), row["latency_us"]
    tx.execute(
        "INSERT INTO evaluation_keys (key, workload, chip, evaluations, passed, least_latency_us, "
        "greatest_latency_us, last_evaluation) VALUES (?, ?, ?, 1, ?, ?, ?, ?) "
        "ON CONFLICT (key) DO UPDATE SET evaluations = evaluations + 1, passed = passed + excluded.passed, "
        "least_latency_us = min(ifnull(least_latency_us, excluded.least_latency_us), "
        "  ifnull(excluded.least_latency_us, least_latency_us)), "
        "greatest_latency_us = max(ifnull(greatest_latency_us, excluded.greatest_latency_us), "
        "  ifnull(excluded.greatest_latency_us, greatest_latency_us)), "
        "last_evaluation = excluded.last_evaluation",
        (row["key"], row["workload"], row["chip"], passed, latency, latency, evaluation),
    )
    if row["failure_rule"] is not None:
        tx.execute(
            "INSERT INTO failure_totals (workload, chip, status, rule, evaluations, last_evaluation) "
            "VALUES (?, ?, ?, ?, 1, ?) ON CONFLICT (workload, chip, status, rule) DO UPDATE SET "
            "evaluations = evaluations + 1, last_evaluation = excluded.last_evaluation",
            (row["workload"], row["chip"], row["status"], row["failure_rule"], evaluation),
        )


def call_ended(tx: Transaction, row: sqlite3.Row) -> None:
    """Update the totals after the outcome of a call was written into ``llm_calls``."""
    failed, unpriced = int(row["outcome"] != "answered"), int(row["cost_usd"] is None)
    tokens = {name: row[name] or 0 for name in ("input_tokens", "cached_tokens", "output_tokens")}
    cost = micro(row["cost_usd"])
    if row["run"] is not None:
        add(
            tx,
            "run_totals",
            {"run": row["run"]},
            {"llm_calls": 1, "failed_calls": failed, "unpriced_calls": unpriced, "cost_micro_usd": cost} | tokens,
        )
    add(
        tx,
        "model_totals",
        {"model": row["model"], "role": row["role"]},
        {
            "calls": 1,
            "failed_calls": failed,
            "unpriced_calls": unpriced,
            "reasoning_tokens": row["reasoning_tokens"] or 0,
            "cost_micro_usd": cost,
            "latency_ms": int((row["latency_s"] or 0.0) * 1000),
        }
        | tokens,
    )


def micro(cost_usd: float | None) -> int:
    """Return whole micro-dollars. An unknown cost is 0; ``unpriced_calls`` counts such calls."""
    return 0 if cost_usd is None else int(cost_usd * MICRO + 0.5)


TOTALS: tuple[Total, ...] = (
    Total(
        "run_statuses",
        ("run", "status"),
        """
        SELECT run, status, count(*) AS candidates FROM candidates
        WHERE parent IS NOT NULL AND status IS NOT NULL GROUP BY run, status""",
    ),
    Total(
        "run_totals",
        ("run",),
        """
        SELECT r.id AS run,
          (SELECT count(*) FROM plans p WHERE p.run = r.id) AS plans,
          (SELECT count(*) FROM attempts a JOIN plans p ON p.id = a.plan WHERE p.run = r.id) AS attempts,
          (SELECT count(*) FROM attempts a JOIN plans p ON p.id = a.plan
            WHERE p.run = r.id AND a.text_sha256 IS NULL) AS no_code,
          count(c.id) AS candidates, count(c.status) AS evaluated, ifnull(sum(c.status = 'passed'), 0) AS passed,
          ifnull(sum(c.status = 'passed' AND ifnull(c.parent_improved, 0)), 0) AS wins
        FROM runs r LEFT JOIN candidates c ON c.run = r.id AND c.parent IS NOT NULL GROUP BY r.id""",
    ),
    Total(
        "run_totals",
        ("run",),
        """
        SELECT r.id AS run, count(l.id) AS llm_calls, ifnull(sum(l.outcome <> 'answered'), 0) AS failed_calls,
          count(l.id) - count(l.cost_usd) AS unpriced_calls, ifnull(sum(l.input_tokens), 0) AS input_tokens,
          ifnull(sum(l.cached_tokens), 0) AS cached_tokens, ifnull(sum(l.output_tokens), 0) AS output_tokens,
          ifnull(sum(CAST(l.cost_usd * 1000000 + 0.5 AS INTEGER)), 0) AS cost_micro_usd
        FROM runs r LEFT JOIN llm_calls l ON l.run = r.id AND l.outcome IS NOT NULL GROUP BY r.id""",
    ),
    Total(
        "failure_totals",
        ("workload", "chip", "status", "rule"),
        """
        SELECT workload, chip, status, failure_rule AS rule, count(*) AS evaluations, max(id) AS last_evaluation
        FROM evaluations WHERE failure_rule IS NOT NULL GROUP BY workload, chip, status, failure_rule""",
    ),
    Total(
        "rule_totals",
        ("rule", "workload"),
        """
        SELECT p.rule AS rule, r.workload AS workload, count(c.status) AS candidates, sum(c.status = 'passed') AS passed,
          sum(c.status = 'passed' AND ifnull(c.parent_improved, 0)) AS wins
        FROM candidates c JOIN plans p ON p.id = c.plan JOIN runs r ON r.id = c.run
        WHERE p.rule <> '' AND c.status IS NOT NULL AND c.parent IS NOT NULL GROUP BY p.rule, r.workload""",
    ),
    Total(
        "model_totals",
        ("model", "role"),
        """
        SELECT model, role, count(*) AS calls, sum(outcome <> 'answered') AS failed_calls,
          count(*) - count(cost_usd) AS unpriced_calls, ifnull(sum(input_tokens), 0) AS input_tokens,
          ifnull(sum(cached_tokens), 0) AS cached_tokens, ifnull(sum(output_tokens), 0) AS output_tokens,
          ifnull(sum(reasoning_tokens), 0) AS reasoning_tokens,
          ifnull(sum(CAST(cost_usd * 1000000 + 0.5 AS INTEGER)), 0) AS cost_micro_usd,
          ifnull(sum(CAST(latency_s * 1000 AS INTEGER)), 0) AS latency_ms
        FROM llm_calls WHERE outcome IS NOT NULL GROUP BY model, role""",
    ),
    Total(
        "evaluation_keys",
        ("key",),
        """
        SELECT key, workload, chip, count(*) AS evaluations, sum(status = 'passed') AS passed,
          min(latency_us) AS least_latency_us, max(latency_us) AS greatest_latency_us, max(id) AS last_evaluation
        FROM evaluations GROUP BY key""",
    ),
)
"""Every table of totals. Two queries fill ``run_totals``: one counts a run's tree, the other its model calls."""
