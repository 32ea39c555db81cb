"""What commands print: data on standard output, narration on standard error."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

JSON_VERSION = 1
"""Version of every ``--json`` answer; grows when a key changes its meaning or goes."""


def print_json(value: dict[str, Any]) -> None:
    """One JSON object with its version, keys in the order given."""
    json.dump({"version": JSON_VERSION} | value, sys.stdout, indent=2, ensure_ascii=False, default=str)
    print()


def add_forms(parser: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    """``--json``, ``--jsonl`` and ``--csv``; further forms may be added to the group."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--jsonl", action="store_true", help="one JSON object a line")
    form.add_argument("--csv", action="store_true", help="comma separated")
    return form


def print_json_lines(rows: Iterable[Mapping[str, Any]]) -> None:
    """One JSON object a line."""
    for row in rows:
        print(json.dumps(row, ensure_ascii=False))


def print_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Comma separated, the names of the columns first."""
    csv.writer(sys.stdout, lineterminator="\n").writerows([columns, *rows])


def say(text: str) -> None:
    """A line of narration."""
    print(text, file=sys.stderr, flush=True)


def print_table(rows: Sequence[Sequence[str]], headers: Sequence[str], *, right: frozenset[int] = frozenset()) -> None:
    """Columns under headers; ``right`` are the columns set to the right. Plain text, no escapes."""
    write_table(sys.stdout, rows, headers, right=right)


def write_table(
    stream: TextIO, rows: Sequence[Sequence[str]], headers: Sequence[str], *, right: frozenset[int] = frozenset()
) -> None:
    """As print_table, to any stream."""
    widths = [
        max(len(header), *(len(row[i]) for row in rows)) if rows else len(header) for i, header in enumerate(headers)
    ]
    for row in (headers, *rows):
        cells = [cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row)]
        stream.write("  ".join(cells).rstrip() + "\n")


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and values in two columns; a value of several lines keeps its column."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        first, *more = value.splitlines() or [""]
        print(f"{name:<{width}}  {first}".rstrip())
        for line in more:
            print(f"{'':<{width}}  {line}".rstrip())
