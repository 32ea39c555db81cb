"""``acceld best``: the best kernel of a run or workload; ``--apply`` writes it."""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from acceld import config, figures
from acceld.cli.arguments import add_json
from acceld.cli.connect import connected, reading, run_named
from acceld.cli.kernels import evaluated_once, stored_kernel
from acceld.cli.output import print_json, say, write_file
from acceld.client import Client
from acceld.errors import UsageError
from acceld.home import find_home
from acceld.model import Gate, Kernel
from acceld.targets import SIMULATOR
from acceld.watch.apply import check_win

TRYING_S = 600.0
"""Deadline in seconds for trying the kernel at the daemon, including its wait in the queue."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("what", metavar="r12|WORKLOAD", help="a run, or a workload for its fastest run")
    parser.add_argument("--chip", help="with a workload: runs for this chip only")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the kernel there (a new file)")
    parser.add_argument(
        "--apply",
        metavar="FILE",
        help="replace a kernel file by one with the same signature and imports that passes today; a copy is kept beside it",
    )
    parser.add_argument(
        "--even-if-tied", action="store_true", help="with --apply: also a kernel that is no faster beyond a tie"
    )
    parser.add_argument(
        "--export",
        metavar="FILE",
        help="write the kernel with provenance, evidence and a self-check, as one file (a new one)",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the best kernel, or write it to a file."""
    what = arguments.what
    with reading(arguments.home) as history:
        if re.fullmatch(r"r\d+", what):
            number = int(what[1:])
        else:
            listed = history.get("/v1/runs", workload=what, chip=arguments.chip, sort="speedup", limit=1)["runs"]
            named: int | None = listed[0]["id"] if listed else run_named(arguments.home, what)
            if named is None:
                raise UsageError(f"no run of workload {what!r} yet", hint="acceld runs lists what there is")
            number = named
        found = history.get(f"/v1/runs/{number}")  # a row of the list lacks the workload's folder
        if found["best"] is None:
            raise UsageError(
                f"r{found['id']} has no kernel that passed", hint=found["message"] or "the run may still be active"
            )
        candidate = history.get(f"/v1/candidates/{found['best']}")
    text = candidate["text"]
    if arguments.output:
        _write_new(Path(arguments.output), text)
    elif arguments.export:
        _write_new(Path(arguments.export), _exported(found, arguments.home))
    elif arguments.apply:
        if not arguments.even_if_tied:
            check_win(found)
        target = Path(arguments.apply).absolute()
        say(_applied(target, candidate, found, arguments.home, arguments.even_if_tied))
    if arguments.json:
        print_json(
            {
                "run": found["id"],
                "candidate": found["best"],
                "workload": found["workload"],
                "latency_us": found["best_latency_us"],
                "speedup": found["speedup"],
                "improved": bool(found["improved"]),
                "tie_band": found["tie_band"],
                "source": found["source"],
                "text": text,
            }
        )
    elif not (arguments.output or arguments.apply or arguments.export):
        print(text, end="")
    latency = figures.latency(
        found["best_latency_us"], found["source"], found["chip"], candidate.get("interval_percent")
    )
    gained = figures.gained(found["speedup"], found["improved"], found["tie_band"])
    say(f"c{found['best']} of r{found['id']}: {latency}, {gained} over the baseline")
    return 0


def _exported(found: Mapping[str, Any], home: str | None) -> str:
    """Return the file that ``--export`` writes for a run's best kernel.

    UsageError if the kernel has not passed the strict gate, or no longer holds.
    """
    from acceld.production import exported, stored_kernels

    kept = [one for one in stored_kernels(found["workload"], home) if one.candidate == found["best"]]
    if not kept:
        raise UsageError(
            f"c{found['best']} has not passed the strict gate, or no longer holds", hint=f"acceld verify r{found['id']}"
        )
    return exported(kept[0])


def _applied(
    path: Path, candidate: Mapping[str, Any], found: Mapping[str, Any], home: str | None, even_if_tied: bool
) -> str:
    """Write the best kernel over a file after every check, and return a message about it. A running daemon writes the
    file, as for the terminal UI. A measured kernel needs a daemon, which lends the device for the check.
    """
    from acceld.watch.apply import apply, check_drop_in, seen

    expected = seen(path)
    check_drop_in(path, _untrusted(candidate))
    if found["backend"] == SIMULATOR and find_home(home).daemon() is None:
        _smoke_test(candidate, found, home)
        backup = apply(path, candidate["text"], expected)
        gained = figures.gained(found["speedup"], found["improved"], found["tie_band"])
        return f"wrote c{candidate['id']} ({gained}) to {path}; the former content is in {backup}"
    place, _ = connected(home)
    asked: dict[str, Any] = {"action": "apply", "path": str(path), "expected_sha256": expected}
    asked |= {"even_if_tied": True} if even_if_tied else {}
    reported = Client(place, timeout_s=TRYING_S).send("POST", f"/v1/runs/{found['id']}/actions", asked)
    return str(reported["result"])


def _smoke_test(candidate: Mapping[str, Any], found: Mapping[str, Any], home: str | None) -> None:
    """Raise UsageError if the kernel's text no longer traces and verifies."""
    settings, state = config.load().config.evaluate, find_home(home).prepare()
    place = {"workload": found["workload"], "folder": found["workload_folder"], "chip": found["chip"]}
    result = asyncio.run(evaluated_once(_untrusted(candidate), Gate.TIMING, settings, state, **place))
    if result.profile is None:
        why = result.failure.message if result.failure else result.status.value
        raise UsageError(f"c{candidate['id']} does not pass today: {why}", hint=f"acceld verify r{found['id']}")


def _untrusted(candidate: Mapping[str, Any]) -> Kernel:
    return replace(stored_kernel(candidate), trusted=False)


def _write_new(path: Path, text: str) -> None:
    if path.exists():
        raise UsageError(f"{path} exists", hint=f"to replace it and keep a copy: --apply {path}")
    write_file(path, text, mode="x")
    say(f"wrote {path}")
