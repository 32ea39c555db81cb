"""``acceld import``: read NKIBench's kernels as workloads, AccelOpt's checkpoints and flashinfer-bench's traces as
history.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

from acceld import config
from acceld.cli.output import print_json, say
from acceld.errors import DaemonError, UsageError, no_file
from acceld.home import Home, find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "source",
        metavar="summary.json|DIR",
        help="NKIBench's summary, a checkpoint of AccelOpt, or a flashinfer-bench trace set",
    )
    parser.add_argument(
        "--into", metavar="DIR", default="workloads", help="for workloads: the folder (default: workloads)"
    )
    parser.add_argument("--chip", choices=("trn1", "trn2"), help="for a checkpoint: the chip it was measured on")
    parser.add_argument("--only", metavar="NAME", help="cases whose name contains this")
    parser.add_argument("--json", action="store_true", help="print what was read as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Import the source. Return 1 if one of several cases could not be read."""
    source = Path(arguments.source)
    if source.is_file():
        return _workloads(source, Path(arguments.into), arguments)
    if not source.is_dir():
        raise no_file(source)
    if (source / "summary.json").is_file():
        return _workloads(source / "summary.json", Path(arguments.into), arguments)
    home = find_home(arguments.home)
    if home.daemon() is not None:
        raise DaemonError("the history can not be added to while the daemon writes it", hint="acceld stop, then again")
    home.prepare()
    runs = asyncio.run(_record(source, home, arguments.only or "", arguments.chip))
    if arguments.json:
        print_json({"runs": runs})
    else:
        say(f"{len(runs)} runs, {sum(one['candidates'] for one in runs)} kernels: acceld runs shows them")
    return 0


def _workloads(summary: Path, folder: Path, arguments: argparse.Namespace) -> int:
    from acceld.report.imports import cases, write_workload

    made, refused = [], []
    for case in cases(summary):
        if arguments.only and arguments.only not in case.name:
            continue
        try:
            made.append(str(write_workload(case, folder)))
        except UsageError as error:
            refused.append({"case": case.name, "why": error.message})
            say(f"{case.name}: {error.message}")
    if arguments.json:
        print_json({"workloads": made, "refused": refused})
    else:
        say(
            f"{len(made)} workloads in {folder}; add it to {config.settings_file()}: [paths] workloads = [{str(folder)!r}]"
        )
    return 1 if refused else 0


async def _record(source: Path, home: Home, only: str, chip: str | None) -> list[Any]:
    """Write the history, and return a record for each run."""
    from acceld.report.checkpoints import checkpoints, is_checkpoint
    from acceld.report.imports import flashinfer
    from acceld.report.recording import record_checkpoint, record_results
    from acceld.store.database import Store

    store = await asyncio.to_thread(Store.open, home.database)
    runs: list[Any] = []
    try:
        if is_checkpoint(source):
            if chip is None:
                raise UsageError(
                    "a checkpoint of AccelOpt does not say which chip it was measured on", hint="add --chip trn1"
                )
            cases = [case for case in checkpoints(source, chip) if only in case.name]
            runs += [await record_checkpoint(store, case, chip, str(source)) for case in cases]
        else:
            found = [one for one in flashinfer(source) if only in one.workload]
            runs += [await record_results(store, one, str(source)) for one in found]
    finally:
        await store.close()
    return runs
