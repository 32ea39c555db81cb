"""Write the output of commands: data to standard output, progress and messages to standard error."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from acceld.cli.streams import writes_unicode
from acceld.errors import UsageError
from acceld.private_files import NO_ROOM

JSON_VERSION = 1
"""Version of every ``--json`` answer. The version grows when a key is removed or changes its meaning."""


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object with the key ``version`` added; keys keep their order."""
    ascii_only = not writes_unicode(sys.stdout)  # JSON can write every character in ASCII, by an escape
    json.dump({"version": JSON_VERSION} | value, sys.stdout, indent=2, ensure_ascii=ascii_only, default=str)
    print()


def answer(arguments: argparse.Namespace, value: dict[str, Any], text: str) -> int:
    """Print ``value`` as JSON if ``--json`` was given, else ``text``. Return 0."""
    if arguments.json:
        print_json(value)
    else:
        print(text)
    return 0


def write_file(path: Path, text: str, *, mode: str = "w") -> None:
    """Write ``text`` to a file that a person named. Raise UsageError if it can not be written; a new file is then not
    left.
    """
    is_new, opened = not path.exists(), False
    try:
        with path.open(mode, encoding="utf-8") as file:
            opened = True
            file.write(text)
    except FileExistsError as error:
        raise UsageError(f"{path} exists already; nothing was written", hint="give another name") from error
    except FileNotFoundError as error:
        if path.parent.is_dir():  # for example a folder of /proc
            raise UsageError(
                f"{path} can not be written: no file can be made in {path.parent}", hint="give another path"
            ) from error
        raise UsageError(
            f"{path} can not be written: there is no folder {path.parent}", hint=f"mkdir -p {path.parent}"
        ) from error
    except OSError as error:
        if is_new and opened:
            path.unlink(missing_ok=True)
        raise UsageError(
            f"{path} can not be written: {error.strerror}",
            hint=f"make room on the disk of {path.parent}, or give another path"
            if error.errno in NO_ROOM
            else "give another path",
        ) from error


def print_json_lines(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print one JSON object a line."""
    for row in rows:
        print(json.dumps(row, ensure_ascii=not writes_unicode(sys.stdout)))


def print_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print comma separated rows, with the column names first."""
    csv.writer(sys.stdout, lineterminator="\n").writerows([columns, *rows])


def say(text: str) -> None:
    """Print a message to standard error."""
    print(text, file=sys.stderr, flush=True)


def print_table(rows: Sequence[Sequence[str]], headers: Sequence[str], *, right: frozenset[int] = frozenset()) -> None:
    """Print rows under headers, as plain text. Columns whose positions are in ``right`` are right-aligned."""
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    for row in (headers, *rows):
        cells = [cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row)]
        print("  ".join(cells).rstrip())


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values in two columns. Further lines of a value stay in its column."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        first, *more = value.splitlines() or [""]
        print(f"{name:<{width}}  {first}".rstrip())
        for line in more:
            print(f"{'':<{width}}  {line}".rstrip())
