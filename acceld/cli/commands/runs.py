"""``acceld runs``: list runs, all or by conditions; run a saved query; or search plans, insights and errors for
words.

The command works with and without a daemon.
"""

from __future__ import annotations

import argparse
from typing import Any

from acceld import figures
from acceld.cli.arguments import add_forms, count
from acceld.cli.connect import reading
from acceld.cli.output import print_json, print_table, say
from acceld.errors import UsageError
from acceld.model import STOPPED, RunState

NEWEST, ROWS = 20, 50
"""Limits on the rows of the list of runs, and on the rows of the other tables."""
CONDITIONS = ("saved", "search", "chip", "model", "since", "where", "sort", "jsonl", "csv")
"""Arguments for which rows are selected by SQL from the view ``history`` of the database file."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--workload", default="", help="this workload only, with or without its family")
    parser.add_argument(
        "--state",
        choices=(*(state.value for state in RunState), STOPPED),
        help="runs in this state; stopped: active when the daemon ended",
    )
    parser.add_argument(
        "--limit", type=count, metavar="N", help=f"rows at most (default {NEWEST}; with a condition {ROWS})"
    )
    view = parser.add_argument_group("by condition, from the view history")
    view.add_argument("--chip", default="", help="runs for this chip only")
    view.add_argument("--model", default="", help="runs that asked this model")
    view.add_argument("--since", default="", metavar="WHEN", help="such as 7d, 12h or 2026-11-01")
    view.add_argument(
        "--where", default="", metavar="EXPR", help='over the columns, such as "speedup>1.2 and cost_usd<3"'
    )
    view.add_argument("--sort", metavar="COLUMN", help="-COLUMN: greatest first (default: -id)")
    other = parser.add_argument_group("other tables").add_mutually_exclusive_group()
    other.add_argument(
        "--saved", metavar="NAME", help="best, failures, near-best, cost-per-win, insight-winrate, flaky, models, rules"
    )
    other.add_argument("--search", metavar="WORDS", help="plans, insights and errors with these words")
    add_forms(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print runs, newest first, and return the exit code.

    With conditions, a saved query or a text to search for, print the rows that these give instead.
    """
    if any(getattr(arguments, name) for name in CONDITIONS):
        if arguments.state:
            raise UsageError(
                "--state can not be combined with other conditions",
                hint=f"acceld runs --where \"state = '{arguments.state}'\"",
            )
        from acceld.cli import run_table

        arguments.limit, arguments.sort = arguments.limit or ROWS, arguments.sort or "-id"
        return run_table.run(arguments)
    return _newest(arguments)


def _newest(arguments: argparse.Namespace) -> int:
    with reading(arguments.home) as history:
        query = {"workload": arguments.workload or None, "state": arguments.state, "limit": arguments.limit or NEWEST}
        listed: list[dict[str, Any]] = history.get("/v1/runs", **query)["runs"]
    if arguments.json:
        print_json({"runs": listed})
        return 0
    if not listed:
        asked = arguments.workload or arguments.state
        say("no run matches; acceld runs lists all" if asked else "no runs yet: acceld optimize WORKLOAD starts one")
        return 0
    rows = [
        (
            f"r{one['id']}",
            one["workload"],
            one["chip"],
            one["proposer"],
            one["state"],
            f"{one['iteration']}/{one['iterations']}",
            str(one["candidates"]),
            figures.duration(one["baseline_latency_us"]),
            figures.duration(one["best_latency_us"]),
            figures.brief_gain(one["speedup"], one["verdict"]),
            "sim" if one["source"] == "simulated" else "",
        )
        for one in listed
    ]
    headers = (
        "run",
        "workload",
        "chip",
        "proposals by",
        "state",
        "iteration",
        "candidates",
        "baseline",
        "best",
        "speed-up",
        "",
    )
    print_table(rows, headers, right=frozenset({5, 6, 7, 8, 9}))
    return 0
