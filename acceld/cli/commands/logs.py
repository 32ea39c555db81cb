"""``acceld logs``: print the daemon's log. Works with and without a daemon."""

from __future__ import annotations

import argparse
import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from acceld.cli.arguments import natural
from acceld.cli.output import say
from acceld.errors import UsageError
from acceld.home import find_home

LEVELS = ("debug", "info", "warning", "error")
POLL_S = 0.3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("-f", "--follow", action="store_true", help="print new lines as they come; Ctrl-C ends")
    parser.add_argument("-n", "--lines", type=natural, default=50, metavar="N", help="the newest N lines (default 50)")
    parser.add_argument("--level", choices=LEVELS, default="debug", help="this level and those above it")
    parser.add_argument("--json", action="store_true", help="one JSON object a line, as in the file")


def run(arguments: argparse.Namespace) -> int:
    """Print lines of the log file, and return the exit code."""
    path = find_home(arguments.home).log_file
    position = 0
    for line in tail(path, arguments.lines):
        _print(line, arguments)
    if path.exists():
        position = path.stat().st_size
    elif arguments.follow:
        say(f"no daemon has written {path} yet: acceld start, or acceld optimize WORKLOAD")
    else:
        raise UsageError(f"no daemon has written {path} yet", hint="acceld start, or acceld optimize WORKLOAD")
    while arguments.follow:
        time.sleep(POLL_S)
        lines, position = since(path, position)
        for line in lines:
            _print(line, arguments)
    return 0


def tail(path: Path, count: int) -> list[str]:
    """Return the ``count`` newest lines of a log. Older ones are read from rotated files."""
    lines: list[str] = []
    for place in (path, *(path.with_name(f"{path.name}.{number}") for number in range(1, 4))):
        if len(lines) >= count or not place.exists():
            break
        lines = place.read_text(errors="replace").splitlines() + lines
    return lines[-count:] if count > 0 else []


def since(path: Path, position: int) -> tuple[list[str], int]:
    """Return the complete lines after a byte position, and the position to continue at. A file that is shorter than the
    position was rotated, and is read from its start.
    """
    if not path.exists():
        return [], 0
    with path.open("rb") as stream:
        if stream.seek(0, 2) < position:
            position = 0
        stream.seek(position)
        whole, newline, _ = stream.read().rpartition(b"\n")
    return whole.decode(errors="replace").splitlines(), position + len(whole) + len(newline)


def _print(raw: str, arguments: argparse.Namespace) -> None:
    try:
        line: dict[str, Any] = json.loads(raw)
    except ValueError:
        line = {"at": None, "level": "info", "logger": "", "text": raw}
    if LEVELS.index(line["level"]) < LEVELS.index(arguments.level) if line["level"] in LEVELS else False:
        return
    if arguments.json:
        print(json.dumps(line), flush=True)
        return
    at = datetime.fromtimestamp(line["at"]).strftime("%m-%d %H:%M:%S") if line["at"] else " " * 14
    print(f"{at} {line['level'].upper():<7} {line['text']}", flush=True)
