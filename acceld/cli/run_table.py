"""Print tables of ``acceld runs`` without a daemon: runs by condition, a saved query, or the plans, insights and
errors that have the words of ``--search``.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from acceld import figures
from acceld.cli.commands.query import show
from acceld.cli.connect import history_file
from acceld.cli.output import say
from acceld.errors import UsageError
from acceld.gains import Verdict, judged
from acceld.home import find_home
from acceld.model import shown_state

SHOWN = {
    "id": "run",
    "workload": "workload",
    "chip": "chip",
    "proposer": "proposals by",
    "state": "state",
    "candidates": "candidates",
    "baseline_latency_us": "baseline",
    "best_latency_us": "best",
    "speedup": "speed-up",
    "percent_of_peak_after": "of peak",
    "cost_usd": "USD",
    "source": "source",
}
"""Columns of the table for people and their titles; --json, --jsonl and --csv have all columns, by name."""


def run(arguments: argparse.Namespace) -> int:
    """Print the table that the arguments ask for. Return the exit code.

    The table is read from the database file, so a running daemon is not disturbed.
    """
    from acceld.store.reads import history, listing

    since = moment(arguments.since) if arguments.since else 0.0
    with history_file(arguments.home) as connection:
        if arguments.search:
            found = listing.search(connection, arguments.search, arguments.limit)
            show(arguments, *_hits(found, whole=arguments.json or arguments.jsonl or arguments.csv))
            if not found:
                say(f"no plan, insight or error has {arguments.search!r}")
            return 0
        if arguments.saved:
            table = history.saved(connection, arguments.saved, arguments.limit)
        else:
            table = history.run_query(
                connection,
                where=arguments.where,
                workload=arguments.workload,
                chip=arguments.chip,
                model=arguments.model,
                since=since,
                sort=arguments.sort,
                limit=arguments.limit,
            )
    columns, rows = table.columns, table.rows
    if not arguments.saved and "state" in columns and find_home(arguments.home).daemon() is None:
        at = columns.index("state")
        rows = [(*row[:at], shown_state(row[at], False), *row[at + 1 :]) for row in rows]
    if not (arguments.saved or arguments.json or arguments.jsonl or arguments.csv):
        kept = [columns.index(name) for name in SHOWN if name in columns]
        verdicts = (judged(dict(zip(columns, row, strict=True))) for row in rows)
        rows = [tuple(_told(columns[i], row[i], one) for i in kept) for row, one in zip(rows, verdicts, strict=True)]
        columns = tuple(SHOWN[columns[i]] for i in kept)
    show(arguments, columns, rows)
    if not rows:
        say(_why_empty(arguments))
    if not arguments.saved or arguments.saved == "best":
        at = table.columns.index("model")
        if len({row[at] for row in table.rows if row[at]}) > 1:
            say(TWO_MODELS)
    if table.truncated:
        say(f"the first {arguments.limit} rows; --limit N shows more")
    return 0


TWO_MODELS = (
    "These runs were timed by several versions or calibrations of the performance model (column model of --json): their "
    "latencies and speed-ups can not be compared."
)


def _hits(found: Sequence[dict[str, Any]], *, whole: bool) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Return the columns and rows of a text search.

    Unless ``whole`` is True, the title of a crossover names the second parent, and the second parent has no column.
    """
    if whole:
        names = ("kind", "id", "title", "partner", "extract")
        return names, [tuple(hit[name] for name in names) for hit in found]
    titled = [f"{hit['title'] or ''}{figures.crossed(hit['partner'])}" for hit in found]
    return ("kind", "id", "title", "extract"), [
        (hit["kind"], hit["id"], title, hit["extract"]) for hit, title in zip(found, titled, strict=True)
    ]


def _told(column: str, value: Any, verdict: Verdict | None) -> Any:
    """Return a column's value as text in the format of the other tables of runs."""
    match column:
        case "id":
            return f"r{value}"
        case "baseline_latency_us" | "best_latency_us":
            return figures.duration(value)
        case "speedup":
            return figures.brief_gain(value, verdict)
        case "percent_of_peak_after":
            return figures.percent(value)
        case "cost_usd":
            return figures.usd(value) if value else "—"
    return value


def _why_empty(arguments: argparse.Namespace) -> str:
    if arguments.saved:
        return f"{arguments.saved} has no rows yet; acceld runs lists the runs"
    asked = (arguments.where, arguments.workload, arguments.chip, arguments.model, arguments.since)
    if any(asked):
        return "no run matches; acceld runs lists all, acceld query --tables names the columns of history for --where"
    return "no runs yet: acceld optimize WORKLOAD starts one, acceld workloads lists what there is"


def moment(text: str, now: float | None = None) -> float:
    """Return the seconds since the epoch of a date, or of a time span ago such as ``7d``, ``12h`` or ``30m``.

    Raise UsageError for any other text.
    """
    span = re.fullmatch(r"(\d+(?:\.\d+)?)([mhdw])", text)
    if span:
        seconds = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}[span[2]]
        return (time.time() if now is None else now) - float(span[1]) * seconds
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"--since {text!r} is neither a time span nor a date",
            hint="such as 7d, 12h, 2026-11-01 or 2026-11-01T08:00",
        ) from error
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
