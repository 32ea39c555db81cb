"""``acceld query``: run an SQL statement over the history, read-only. Works with and without a daemon."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from acceld import figures
from acceld.cli.arguments import add_forms, count, span
from acceld.cli.connect import history_file
from acceld.cli.output import print_csv, print_json, print_json_lines, print_table, say
from acceld.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "sql", nargs="?", help="one read-only SQL statement; docs/schema.md describes tables and views; - reads stdin"
    )
    parser.add_argument("--tables", action="store_true", help="list tables and views with their columns")
    parser.add_argument("--limit", type=count, default=1000, metavar="N", help="rows at most (default 1000)")
    parser.add_argument("--time-limit", type=span, default=30.0, metavar="S", help="seconds at most (default 30)")
    add_forms(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the statement on the database file, and print its rows. Raise UsageError if no statement is given."""
    from acceld.store.reads.history import query, tables

    if arguments.tables:
        with history_file(arguments.home) as connection:
            columns = tables(connection)
        show(arguments, ("table", "columns"), [(name, ", ".join(names)) for name, names in columns.items()], wide=True)
        return 0
    if arguments.sql is None:
        raise UsageError(
            "an SQL statement is needed",
            hint='acceld query "SELECT * FROM history"; --tables lists the tables and their columns.',
        )
    sql = _typed() if arguments.sql == "-" else arguments.sql
    with history_file(arguments.home) as connection:
        table = query(connection, sql, limit=arguments.limit, time_limit_s=arguments.time_limit)
    if table.truncated:
        say(f"the first {arguments.limit} rows; --limit N shows more")
    show(arguments, table.columns, table.rows)
    if not table.rows:
        say("no rows")
    return 0


def show(
    arguments: argparse.Namespace, columns: tuple[str, ...], rows: list[tuple[Any, ...]], *, wide: bool = False
) -> None:
    """Print rows in the format that the flags choose. Cells are cut on a terminal alone, and there not with ``wide``.

    Tables for people have times in ISO 8601; JSON has them in seconds since the epoch.
    """
    if not (arguments.json or arguments.jsonl):
        times = {place for place, name in enumerate(columns) if name == "at" or name.endswith("_at")}
        rows = [
            tuple(figures.moment(value) if place in times else value for place, value in enumerate(row)) for row in rows
        ]
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
        print_table(
            [
                [figures.cell(value, figures.CELL if sys.stdout.isatty() and not wide else None) for value in row]
                for row in rows
            ],
            columns,
            right=numbers,
        )


def _typed() -> str:
    """Return the statement from standard input. Raise UsageError if its bytes are not in the encoding of
    standard input.
    """
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        hint = "PYTHONIOENCODING=utf-8 reads UTF-8"
        raise UsageError(f"standard input is not {sys.stdin.encoding} at byte {error.start}", hint=hint) from error
