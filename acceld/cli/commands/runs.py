"""``acceld runs``: list runs, with or without a daemon."""

from __future__ import annotations

import argparse
from typing import Any

from acceld import figures
from acceld.cli.arguments import add_json, count
from acceld.cli.connect import reading
from acceld.cli.output import print_json, print_table, say
from acceld.model import STOPPED, RunState


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--workload", help="runs of this workload only")
    parser.add_argument(
        "--state",
        choices=(*(state.value for state in RunState), STOPPED),
        help="runs in this state; stopped: active when the daemon ended",
    )
    parser.add_argument("--limit", type=count, default=20, metavar="N", help="rows at most (default 20)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """List runs, newest first."""
    with reading(arguments.home) as history:
        query = {"workload": arguments.workload, "state": arguments.state, "limit": arguments.limit}
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
            figures.brief_gain(one["speedup"], one["improved"]),
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
