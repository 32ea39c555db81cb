"""Questions over all runs: the saved ones, runs by a condition, and plain SQL under a time limit.

The saved queries read kept totals, never the candidates themselves, so that they stay fast at any size.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from acceld.errors import DeadlineError, UsageError, did_you_mean
from acceld.store.reader import PROGRESS_STEPS


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows, as plain values."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    truncated: bool = False

    def to_json(self) -> dict[str, Any]:
        """JSON-able form."""
        return {"columns": list(self.columns), "rows": [list(row) for row in self.rows], "truncated": self.truncated}


SAVED: dict[str, tuple[str, str]] = {
    "best": (
        "the fastest kernel of each workload and chip",
        """
        SELECT workload, chip, api, 'r' || id AS run, 'c' || best AS candidate, proposer,
          baseline_latency_us, best_latency_us, max(speedup) AS speedup, percent_of_peak_after AS percent_of_peak,
          coalesce((SELECT f.source FROM candidates c JOIN profiles f ON f.evaluation = c.evaluation
            WHERE c.id = runs.best), CASE WHEN backend = 'simulator' THEN 'simulated' ELSE 'measured' END) AS source
        FROM runs WHERE speedup IS NOT NULL GROUP BY workload, chip, api, backend ORDER BY workload, chip""",
    ),
    "failures": (
        "why candidates fail, the most frequent first",
        """
        SELECT status, rule, sum(evaluations) AS evaluations, count(DISTINCT workload) AS workloads,
          'e' || max(last_evaluation) AS last_evaluation
        FROM failure_totals GROUP BY status, rule ORDER BY evaluations DESC, status, rule""",
    ),
    "cost-per-win": (
        "what a candidate faster than its parent costs, by workload and proposer",
        """
        SELECT r.workload, r.proposer, count(*) AS runs, sum(t.candidates) AS candidates, sum(t.wins) AS wins,
          sum(t.cost_micro_usd) / 1000000.0 AS cost_usd, sum(t.unpriced_calls) AS unpriced_calls,
          CASE WHEN sum(t.wins) > 0 AND sum(t.unpriced_calls) = 0
            THEN sum(t.cost_micro_usd) / 1000000.0 / sum(t.wins) END AS usd_per_win
        FROM runs r JOIN run_totals t ON t.run = r.id GROUP BY r.workload, r.proposer ORDER BY usd_per_win, wins DESC""",
    ),
    "insight-winrate": (
        "which insights lead to faster kernels",
        """
        SELECT 'i' || id AS insight, title, kind, uses, wins, losses,
          CASE WHEN wins + losses > 0 THEN round(1.0 * wins / (wins + losses), 3) END AS win_rate, speedup,
          pinned, muted FROM insights WHERE NOT withdrawn ORDER BY win_rate DESC NULLS LAST, uses DESC, id""",
    ),
    "flaky": (
        "work that was judged more than once and came out differently",
        """
        SELECT workload, chip, key, evaluations, passed, least_latency_us, greatest_latency_us,
          'e' || last_evaluation AS last_evaluation FROM evaluation_keys
        WHERE evaluations > 1 AND (passed NOT IN (0, evaluations) OR greatest_latency_us > least_latency_us * 1.02)
        ORDER BY evaluations - passed DESC, key""",
    ),
    "models": (
        "what each model was asked, how often it failed, and what it cost",
        """
        SELECT model, role, calls, failed_calls, input_tokens, cached_tokens, output_tokens,
          CASE WHEN unpriced_calls < calls THEN cost_micro_usd / 1000000.0 END AS cost_usd, unpriced_calls,
          round(latency_ms / 1000.0 / calls, 2) AS seconds_per_call
        FROM model_totals ORDER BY cost_micro_usd DESC, calls DESC""",
    ),
    "rules": (
        "which rewrite rules make kernels faster",
        """
        SELECT rule, sum(candidates) AS candidates, sum(passed) AS passed, sum(wins) AS wins,
          count(*) AS workloads, round(1.0 * sum(wins) / max(1, sum(candidates)), 3) AS win_rate
        FROM rule_totals GROUP BY rule ORDER BY wins DESC, rule""",
    ),
}
"""Name to what it tells and its SQL."""


def saved(connection: sqlite3.Connection, name: str, limit: int = 200) -> Table:
    """One of the saved queries. UsageError for another name."""
    if name not in SAVED:
        raise UsageError(
            f"there is no saved query {name!r}. {did_you_mean(name, SAVED)}".rstrip(),
            hint=f"One of {', '.join(SAVED)}.",
        )
    return query(connection, SAVED[name][1], limit=limit)


def query(
    connection: sqlite3.Connection,
    sql: str,
    values: Sequence[Any] = (),
    *,
    limit: int = 1000,
    time_limit_s: float = 5.0,
) -> Table:
    """Run one statement that reads. UsageError for one that is wrong or writes, DeadlineError for one that takes longer.

    ``connection`` must be read-only, which stops every statement that would write.
    """
    deadline = time.monotonic() + time_limit_s
    connection.set_progress_handler(lambda: int(time.monotonic() > deadline), PROGRESS_STEPS)
    _connect_indexes(connection)
    connection.set_authorizer(_only_reading)
    try:
        cursor = connection.execute(sql, values)
        if cursor.description is None:
            raise UsageError("the statement gives no rows", hint="Only statements that read are run: SELECT ...")
        found = cursor.fetchmany(limit + 1)
        columns = tuple(column[0] for column in cursor.description)
        cursor.close()
    except sqlite3.OperationalError as error:
        if "interrupted" in str(error):
            raise DeadlineError(
                f"the query took longer than {time_limit_s:g} s", hint="Narrow it, or give more time."
            ) from error
        if "readonly" in str(error):
            raise UsageError(
                "the history can not be changed by SQL", hint="Only statements that read are run."
            ) from error
        raise UsageError(f"SQL: {error}", hint="docs/schema.md describes tables and views.") from error
    except (sqlite3.Warning, sqlite3.ProgrammingError, sqlite3.DatabaseError) as error:
        if "not authorized" in str(error) or "prohibited" in str(error):
            raise UsageError(
                "the history can not be changed by SQL", hint="Only statements that read are run."
            ) from error
        raise UsageError(
            f"SQL: {error}", hint="One statement that reads; docs/schema.md describes the tables."
        ) from error
    finally:
        connection.set_authorizer(None)
        connection.set_progress_handler(None, 0)
    return Table(columns, [tuple(_plain(value) for value in row) for row in found[:limit]], len(found) > limit)


def _connect_indexes(connection: sqlite3.Connection) -> None:
    """Let SQLite open the full-text indexes, which it does as if it created tables, before creating is forbidden."""
    found = connection.execute("SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL TABLE%'").fetchall()
    for (name,) in found:
        connection.execute(f"SELECT rowid FROM {name} LIMIT 0")


_READING = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
_LOOKING = frozenset(
    "table_info table_xinfo table_list index_list index_info index_xinfo foreign_key_list user_version application_id "
    "page_count page_size freelist_count compile_options data_version function_list".split()
)
"""Pragmas that only look, where they are given no value."""


def _only_reading(action: int, first: str | None, second: str | None, database: str | None, trigger: str | None) -> int:
    """Allow what reads this database: no other file is opened or made, no setting changed."""
    if action in _READING:
        return sqlite3.SQLITE_OK
    takes_a_name = first in _LOOKING and (second is None or not (first or "").endswith(("version", "id", "size")))
    if action == sqlite3.SQLITE_PRAGMA and takes_a_name:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _plain(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def run_query(
    connection: sqlite3.Connection,
    *,
    where: str = "",
    workload: str = "",
    chip: str = "",
    model: str = "",
    since: float = 0.0,
    sort: str = "id",
    limit: int = 100,
) -> Table:
    """Runs by condition; ``where`` is an SQL expression over the columns of the view ``history``."""
    conditions, values = ["created_at >= ?"], list[Any]([since])
    for column, value in (("workload", workload), ("chip", chip)):
        if value:
            conditions.append(f"({column} = ? OR {column} LIKE ?)")
            values += [value, f"%/{value}"]
    if model:
        conditions.append("id IN (SELECT run FROM llm_calls WHERE model = ?)")
        values.append(model)
    if where:
        conditions.append(f"({where})")
    column = sort.lstrip("-")
    if not column.isidentifier():
        raise UsageError(f"can not sort by {sort!r}", hint="Name a column, such as speedup.")
    direction = "DESC" if sort.startswith("-") or sort == "id" else "ASC"
    sql = f"SELECT * FROM history WHERE {' AND '.join(conditions)} ORDER BY {column} {direction}"
    return query(connection, sql, values, limit=limit)
