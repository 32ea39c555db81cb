"""``acceld query``: plain SQL over the history, read-only, with or without a daemon."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from acceld.cli.arguments import add_forms, count, span
from acceld.cli.connect import history_file
from acceld.cli.output import print_csv, print_json, print_json_lines, print_table, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "sql", help="one statement that reads; docs/schema.md describes tables and views; - reads stdin"
    )
    parser.add_argument("--limit", type=count, default=1000, metavar="N", help="rows at most (default 1000)")
    parser.add_argument("--time-limit", type=span, default=30.0, metavar="S", help="seconds at most (default 30)")
    add_forms(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the statement on the file itself."""
    from acceld.store.reads.history import query

    sql = sys.stdin.read() if arguments.sql == "-" else arguments.sql
    with history_file(arguments.home) as connection:
        table = query(connection, sql, limit=arguments.limit, time_limit_s=arguments.time_limit)
    show(arguments, table.columns, table.rows)
    if table.truncated:
        say(f"the first {arguments.limit} rows; --limit N shows more")
    return 0


def show(arguments: argparse.Namespace, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    """Print rows as the flags ask."""
    if arguments.json:
        print_json({"columns": list(columns), "rows": [dict(zip(columns, row, strict=True)) for row in rows]})
    elif arguments.jsonl:
        print_json_lines(dict(zip(columns, row, strict=True)) for row in rows)
    elif arguments.csv:
        print_csv(columns, rows)
    else:
        numbers = frozenset(
            place for place in range(len(columns)) if rows and all(isinstance(row[place], int | float) for row in rows)
        )
        print_table([[cell(value) for value in row] for row in rows], columns, right=numbers)


def cell(value: Any) -> str:
    """A value on one line, without what would steer a terminal."""
    if value is None:
        return ""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= 80 else text[:79] + "…"
