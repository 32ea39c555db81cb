"""``acceld diff``: show the difference between two candidates."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from typing import Any

from acceld import figures
from acceld.cli.arguments import add_json, number_of
from acceld.cli.connect import History, reading, run_number
from acceld.cli.kernels import stored_profile
from acceld.cli.output import print_json
from acceld.errors import UsageError
from acceld.gains import gain, paired_speedup


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("candidate", metavar="c345|r12", help="a candidate, or a run (its id or name) for its best")
    parser.add_argument(
        "against",
        nargs="?",
        default="",
        metavar="c301|parent|baseline|best",
        help="the kernel to compare with (default: parent; for a run: baseline)",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print a unified diff. The exit code is 0 with and without a difference."""
    with reading(arguments.home) as history:
        name, default = arguments.candidate, "parent"
        if re.fullmatch(r"c?[0-9]+", name) is None:
            number = run_number(arguments.home, name)
            best = history.get(f"/v1/runs/{number}")["best"]
            if best is None:
                raise UsageError(
                    f"r{number} has no kernel that passed",
                    hint=f"acceld tree r{number} shows the result of each candidate",
                )
            name, default = f"c{best}", "baseline"
        new = history.get(f"/v1/candidates/{number_of(name, 'c')}")
        old = _other(history, new, arguments.against or default)
    lines = list(
        difflib.unified_diff(
            old["text"].splitlines(), new["text"].splitlines(), f"c{old['id']}", f"c{new['id']}", lineterm=""
        )
    )
    if arguments.json:
        facts = ("id", "latency_us", "source", "speedup", "improved", "tie_band", "status", "title")
        print_json(
            {"old": {key: old.get(key) for key in facts}, "new": {key: new.get(key) for key in facts}, "diff": lines}
        )
        return 0
    if old["latency_us"] and new["latency_us"]:
        change = _change(old, new)
        before, after = (figures.brief_latency(one["latency_us"], one["source"]) for one in (old, new))
        print(f"# {before} -> {after}, {change}")
    _print(lines)
    return 0


def _change(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Return the speed-up from the old candidate to the new one, with ``likely`` or ``tie`` if it is not
    certain.
    """
    before, after = ((one["sha256"], stored_profile(one)) for one in (old, new))
    found = gain(before[1], after[1], paired_speedup((after, before)))
    return "" if found is None else figures.gained(found.ratio, found.verdict(new["source"]), reason=found.reason)


def _other(history: History, new: dict[str, Any], against: str) -> dict[str, Any]:
    if against == "parent":
        number = new["parent"]
        if number is None:
            raise UsageError(
                f"c{new['id']} is a baseline, so there is no parent to compare it with",
                hint="give another candidate: acceld diff c345 c301",
            )
    elif against in ("baseline", "best"):
        number = history.get(f"/v1/runs/{new['run']}")[against]
        if number is None:
            raise UsageError(
                f"r{new['run']} has no {against} kernel to compare with",
                hint="give another candidate: acceld diff c345 c301",
            )
    elif re.fullmatch(r"r[0-9]+", against):
        raise UsageError(
            f"{against} is a run, and c{new['id']} is a candidate",
            hint=f"acceld compare r{new['run']} {against} compares two runs",
        )
    else:
        number = number_of(against, "c")
    found: dict[str, Any] = history.get(f"/v1/candidates/{number}")
    return found


def _print(lines: list[str]) -> None:
    import os

    colors = {"+": "32", "-": "31", "@": "36"} if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else {}
    for line in lines:
        color = colors.get(line[:1])
        print(f"\x1b[{color}m{line}\x1b[0m" if color else line)
