"""``acceld import``: NKIBench's kernels as workloads, flashinfer-bench's results as history."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

from acceld.cli.output import print_json, say
from acceld.errors import DaemonError, UsageError
from acceld.home import Home, find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to read."""
    parser.add_argument(
        "source", metavar="summary.json|DIR", help="NKIBench's summary, or a flashinfer-bench trace set"
    )
    parser.add_argument(
        "--into", metavar="DIR", default="workloads", help="for workloads: the folder (default: workloads)"
    )
    parser.add_argument("--only", metavar="NAME", help="cases whose name contains this")
    parser.add_argument("--json", action="store_true", help="print what was read as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Read it; 1 where a case of several could not be read."""
    source = Path(arguments.source)
    if source.is_file():
        return _workloads(source, Path(arguments.into), arguments)
    if not source.is_dir():
        raise UsageError(f"there is no file or folder {source}")
    if (source / "summary.json").is_file():
        return _workloads(source / "summary.json", Path(arguments.into), arguments)
    home = find_home(arguments.home)
    if home.daemon() is not None:
        raise DaemonError("the history can not be added to while the daemon writes it", hint="acceld stop, then again.")
    home.prepare()
    runs = asyncio.run(_results(source, home, arguments.only or ""))
    if arguments.json:
        print_json({"runs": runs})
    else:
        say(f"{len(runs)} runs, {sum(one['candidates'] for one in runs)} kernels: acceld history shows them")
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
        say(f"{len(made)} workloads in {folder}; add it to acceld.toml: [paths] workloads = [{str(folder)!r}]")
    return 1 if refused else 0


async def _results(source: Path, home: Home, only: str) -> list[dict[str, Any]]:
    from acceld.model import Candidate, RunSpec, RunState, Status
    from acceld.report.imports import METHOD, flashinfer
    from store.database import Store

    store = await asyncio.to_thread(Store.open, home.database)
    runs = []
    try:
        for one in flashinfer(source):
            if only not in one.workload:
                continue
            spec = RunSpec(one.workload, chip=one.chip, api="imported", backend=one.backend, proposer="imported")
            run = await store.create_run(spec)
            await store.set_run_state(run.id, RunState.RUNNING)
            passed = [entry for entry in one.results if entry[1].status is Status.PASSED]
            passed.sort(key=lambda entry: -(entry[1].latency_us or 0.0))
            others = [entry for entry in one.results if entry[1].status is not Status.PASSED]
            first, best = None, None
            for kernel, evaluation in (*passed, *others):
                made = await store.write_candidate(Candidate(run.id, 0 if first is None else 1, kernel, first))
                key = f"{METHOD}/{one.workload}/{one.chip}/{kernel.sha256}"
                made = await store.write_evaluation(
                    made, evaluation, workload=one.workload, backend=one.backend, chip=one.chip, key=key
                )
                first = first or made.id
                if evaluation.status is Status.PASSED:
                    best = made
                    await store.set_best(run.id, best.id)
            await store.set_run_state(run.id, RunState.FINISHED, f"imported from {source}")
            runs.append({"run": run.id, "workload": one.workload, "candidates": len(one.results)})
    finally:
        await store.close()
    return runs
