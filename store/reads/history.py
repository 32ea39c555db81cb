"""Ask about all runs: saved queries, runs that meet a condition, and any SQL that reads, within a time limit.

Saved queries read stored totals or the candidates of the newest runs only, so they are fast at any size.
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
    """Columns and rows of an answer, as plain values. ``truncated`` is True if there are more rows than the limit."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    truncated: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the table as data for JSON."""
        return {"columns": list(self.columns), "rows": [list(row) for row in self.rows], "truncated": self.truncated}


SAVED: dict[str, tuple[str, str]] = {
    "best": (
        "the fastest kernel of each workload and chip",
        """
        SELECT workload, chip, api, 'r' || id AS run, 'c' || best AS candidate, proposer,
          baseline_latency_us, best_latency_us, max(speedup) AS speedup, improved, tie_band,
          json_extract(basis, '$.model') AS model, percent_of_peak_after AS percent_of_peak,
          coalesce((SELECT f.source FROM candidates c JOIN profiles f ON f.evaluation = c.evaluation
            WHERE c.id = runs.best), CASE WHEN backend = 'simulator' THEN 'simulated' ELSE 'measured' END) AS source
        FROM runs WHERE speedup IS NOT NULL GROUP BY workload, chip, api, backend ORDER BY workload, chip""",
    ),
    "failures": (
        "why candidates fail, the most frequent first",
        """
        SELECT t.status, t.rule, t.evaluations, t.workloads, e.failure_message AS message, 'e' || t.last AS last_evaluation
        FROM (SELECT status, rule, sum(evaluations) AS evaluations, count(DISTINCT workload) AS workloads,
            max(last_evaluation) AS last FROM failure_totals GROUP BY status, rule) t
        LEFT JOIN evaluations e ON e.id = t.last ORDER BY t.evaluations DESC, t.status, t.rule""",
    ),
    "near-best": (
        "kernels within 0.5 % of the best of their run, and what differs: the newest 20 runs",
        """
        SELECT 'r' || r.id AS run, r.workload, 'c' || c.id AS candidate, c.latency_us,
          round(100.0 * (c.latency_us / r.best_latency_us - 1), 2) AS slower_percent,
          json_extract(p.data, '$.variants[' || c.attempt_number || '].name') AS change, p.title,
          c.id = r.best AS is_best
        FROM (SELECT * FROM runs WHERE best IS NOT NULL ORDER BY id DESC LIMIT 20) r
        JOIN candidates c ON c.run = r.id LEFT JOIN plans p ON p.id = c.plan
        WHERE c.status = 'passed' AND c.latency_us <= r.best_latency_us * 1.005
        ORDER BY r.id DESC, c.latency_us, c.id""",
    ),
    "cost-per-win": (
        "what a candidate costs that is faster than its parent beyond a tie, by workload and proposer",
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
        "work that was evaluated more than once and came out differently",
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
        "which rewrite rules make kernels faster beyond a tie",
        """
        SELECT rule, sum(candidates) AS candidates, sum(passed) AS passed, sum(wins) AS wins,
          count(*) AS workloads,
          CASE WHEN sum(passed) > 0 THEN round(1.0 * sum(wins) / sum(candidates), 3) END AS win_rate
        FROM rule_totals GROUP BY rule ORDER BY wins DESC, rule""",
    ),
}
"""Description and SQL of each saved query, by name."""
ASKED = ("history", "results", "rewrites")
"""The views that people ask for most: runs, results of candidates, slow-fast pairs. :func:`tables` lists them first."""


def saved(connection: sqlite3.Connection, name: str, limit: int = 200) -> Table:
    """Return the result of a saved query. Raise UsageError for an unknown name."""
    if name not in SAVED:
        raise UsageError(
            f"there is no saved query {name!r}. {did_you_mean(name, SAVED)}".rstrip(),
            hint=f"The saved queries are {', '.join(SAVED)}.",
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
    """Run one SQL statement that reads, and return at most ``limit`` rows.

    Raise UsageError if the statement is invalid, writes, or returns too many bytes, and DeadlineError after
    ``time_limit_s``. ``connection`` has to be read-only, so that SQLite itself refuses every statement that
    would write.
    """
    deadline = time.monotonic() + time_limit_s
    connection.set_progress_handler(lambda: int(time.monotonic() > deadline), PROGRESS_STEPS)
    _connect_indexes(connection)
    connection.set_authorizer(_only_reading)
    longest = connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _VALUE_BYTES)
    try:
        cursor = connection.execute(sql, values)
        if cursor.description is None:
            raise UsageError(
                "the SQL statement gives no rows", hint="Write a statement that reads, such as SELECT ... FROM history."
            )
        found = _bounded(cursor, limit + 1)
        columns = tuple(column[0] for column in cursor.description)
        cursor.close()
    except (sqlite3.Error, sqlite3.Warning, UnicodeEncodeError) as error:
        connection.set_authorizer(None)
        raise _explained(connection, sql, error, time_limit_s) from error
    finally:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest)
        connection.set_authorizer(None)
        connection.set_progress_handler(None, 0)
    return Table(columns, [tuple(_plain(value) for value in row) for row in found[:limit]], len(found) > limit)


def _explained(
    connection: sqlite3.Connection, sql: str, error: Exception, time_limit_s: float
) -> DeadlineError | UsageError:
    """Return the error for people for an ``error`` that SQLite raised for a query, with advice."""
    text, name = str(error), sql.strip()
    if isinstance(error, UnicodeEncodeError):
        return UsageError(
            "the SQL statement holds half of a surrogate pair, which UTF-8 has no bytes for",
            hint="Remove that character.",
        )
    is_operational = isinstance(error, sqlite3.OperationalError)
    if is_operational and "interrupted" in text:
        return DeadlineError(
            f"the query took longer than {time_limit_s:g} s and was ended",
            hint="Read fewer rows with a WHERE condition, or allow more time.",
        )
    if "use function" in text:
        hint = "Queries may only call functions that compute on their arguments, such as round or json_extract."
        return UsageError(f"SQL: {text}", hint=hint)
    if any(words in text for words in (_WRITES if is_operational else _DENIED)):
        return UsageError(
            "the history can not be changed by SQL",
            hint="Write a statement that reads, such as SELECT ... FROM history.",
        )
    if isinstance(error, sqlite3.DataError):
        hint = f"One value may have at most {_VALUE_BYTES >> 20} MiB: use substr() of long texts."
    elif not is_operational:
        hint = "Write one statement that reads; docs/schema.md describes the tables."
    elif name in SAVED:
        return UsageError(f"{name} is the name of a saved query, not SQL", hint=f"acceld runs --saved {name}")
    else:
        hint = _nearest(connection, text) or "acceld query --tables lists tables, views and columns."
    return UsageError(f"SQL: {text}", hint=hint)


_WRITES, _DENIED = ("readonly", "cannot modify"), ("not authorized", "prohibited")
"""Words of SQLite's errors for a statement that would write: of operational errors, and of any other."""


def _bounded(cursor: sqlite3.Cursor, most: int) -> list[tuple[Any, ...]]:
    """Return up to ``most`` rows. Raise UsageError if the rows have more than ``_ANSWER_BYTES``."""
    found: list[tuple[Any, ...]] = []
    room_bytes = _ANSWER_BYTES
    for row in cursor:
        found.append(row)
        room_bytes -= sum(len(value) if isinstance(value, str | bytes) else 8 for value in row)
        if room_bytes < 0:
            hint = "Select fewer columns or rows, or substr() of long texts."
            raise UsageError(f"the answer has more than {_ANSWER_BYTES >> 20} MiB", hint=hint)
        if len(found) == most:
            break
    return found


def tables(connection: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    """Return the columns of each table and view.

    The views of ``ASKED`` come first, then the other views, then the tables. Internal tables of SQLite and of
    the full-text search are left out.
    """
    found = connection.execute(
        "SELECT m.name, p.name FROM sqlite_schema m JOIN pragma_table_info(m.name) p "
        "WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' "
        "AND m.name NOT LIKE '\\_%' ESCAPE '\\' AND m.name NOT LIKE '%\\_search\\_%' ESCAPE '\\' "
        "ORDER BY m.type DESC, m.name, p.cid"
    )
    first = {name: place for place, name in enumerate(ASKED)}
    named: dict[str, tuple[str, ...]] = {}
    for name, column in found.fetchall():
        named[name] = (*named.get(name, ()), column)
    return dict(sorted(named.items(), key=lambda one: first.get(one[0], len(first))))


def _nearest(connection: sqlite3.Connection, message: str) -> str:
    """Return a hint with the nearest known name, if an error message names an unknown table or column.

    Any other message gives an empty hint.
    """
    kind, _, name = message.partition(": ")
    if kind not in ("no such table", "no such column"):
        return ""
    known = tables(connection)
    if kind.endswith("table"):
        return did_you_mean(name, sorted(known))
    column = name.rpartition(".")[2]
    holders = [table for table, columns in known.items() if column in columns]
    if holders:
        return f"{column!r} is a column of {', '.join(holders)}."
    return did_you_mean(column, sorted({column for columns in known.values() for column in columns}))


def _connect_indexes(connection: sqlite3.Connection) -> None:
    """Open the full-text indexes before :func:`_only_reading` decides what SQLite may do.

    When SQLite first opens an index, it asks for the right to create tables, which would be denied.
    """
    found = connection.execute("SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL TABLE%'").fetchall()
    for (name,) in found:
        connection.execute(f"SELECT rowid FROM {name} LIMIT 0")


_VALUE_BYTES, _ANSWER_BYTES = 8 << 20, 32 << 20
"""Limits in bytes on one value while a query runs, and on all rows of its answer."""
_FUNCTIONS = frozenset(
    "-> ->> abs acos asin atan atan2 avg bm25 ceil ceiling changes char coalesce concat concat_ws cos count cume_dist date datetime "
    "degrees dense_rank exp first_value floor format glob group_concat hex highlight ifnull iif instr json json_array "
    "json_array_length json_each json_extract json_group_array json_group_object json_object json_quote json_tree json_type "
    "json_valid julianday lag last_value lead length like likelihood likely ln log log10 log2 lower ltrim match max min mod "
    "nth_value ntile nullif percent_rank pi pow power printf quote radians random rank regexp replace round row_number rtrim sign "
    "sin snippet sqrt sqlite_version strftime string_agg substr substring sum tan time timediff total trim trunc typeof unicode "
    "unixepoch unlikely upper".split()
)
"""SQL functions that a query may call: each only computes on its arguments.

Functions that open a file, load code or make a long value from short ones are not in the set.
"""
_READING = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})
_LOOKING = frozenset(
    "table_info table_xinfo table_list index_list index_info index_xinfo foreign_key_list user_version application_id "
    "page_count page_size freelist_count compile_options data_version function_list".split()
)
"""Pragmas that a query may use. A pragma of this set only reads, as long as it is given no value."""


def _only_reading(action: int, first: str | None, second: str | None, database: str | None, trigger: str | None) -> int:
    """Allow SQLite the actions that read this database, and deny all others: opening other files, writing,
    changing settings.

    Return ``SQLITE_OK`` or ``SQLITE_DENY`` (the interface of SQLite's authorizer).
    """
    if action in _READING:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_OK if (second or "").lower() in _FUNCTIONS else sqlite3.SQLITE_DENY
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
    """Return the rows of the view ``history`` that meet all conditions; an empty argument is no condition.

    ``where`` is an SQL expression over the columns of the view. ``since`` is in seconds since the epoch.
    ``sort`` is a column; a leading ``-`` reverses the order. Raise UsageError if ``sort`` is not a name.
    """
    conditions, values = ["created_at >= strftime('%Y-%m-%dT%H:%M:%fZ', ?, 'unixepoch')"], list[Any]([since])
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
        raise UsageError(
            f"can not sort by {sort!r}, which is not a name", hint="Name a column of the view history, such as speedup."
        )
    direction = "DESC" if sort.startswith("-") or sort == "id" else "ASC"
    sql = f"SELECT * FROM history WHERE {' AND '.join(conditions)} ORDER BY {column} {direction}"
    return query(connection, sql, values, limit=limit)
