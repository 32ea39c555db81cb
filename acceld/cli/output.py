"""Output of commands: data on standard output, progress and messages on standard error."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from acceld.errors import UsageError

JSON_VERSION = 1
"""Version of every ``--json`` answer; grows when a key changes its meaning or goes."""


def print_json(value: dict[str, Any]) -> None:
    """One JSON object with its version, keys in the order given."""
    json.dump({"version": JSON_VERSION} | value, sys.stdout, indent=2, ensure_ascii=False, default=str)
    print()


def answer(arguments: argparse.Namespace, value: dict[str, Any], text: str) -> int:
    """Print ``value`` where JSON was asked for, else ``text``; returns 0."""
    if arguments.json:
        print_json(value)
    else:
        print(text)
    return 0


def write_file(path: Path, text: str, *, mode: str = "w") -> None:
    """Write a file a person named. UsageError where that can not be done."""
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


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
    """Print columns under headers; those in ``right`` are set to the right. Plain text, no escapes."""
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    for row in (headers, *rows):
        cells = [cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row)]
        print("  ".join(cells).rstrip())


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and values in two columns; a value of several lines keeps its column."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        first, *more = value.splitlines() or [""]
        print(f"{name:<{width}}  {first}".rstrip())
        for line in more:
            print(f"{'':<{width}}  {line}".rstrip())
