"""``acceld import``: read NKIBench's kernels and KernelBench's problems as workloads, and AccelOpt's
checkpoints and flashinfer-bench's traces as history.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from pathlib import Path
from typing import Any

from acceld import config, figures
from acceld.cli.output import print_json, say
from acceld.errors import DaemonError, UsageError, WorkloadError, no_file
from acceld.home import Home, find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "source",
        nargs="+",
        metavar="summary.json|DIR|kernelbench DIR",
        help="NKIBench's summary, a checkpoint of AccelOpt, a flashinfer-bench trace set; "
        "or the word kernelbench and a folder of KernelBench's problems",
    )
    parser.add_argument(
        "--into", metavar="DIR", default="workloads", help="for workloads: the folder (default: workloads)"
    )
    parser.add_argument("--chip", choices=("trn1", "trn2"), help="for a checkpoint: the chip it was measured on")
    parser.add_argument("--only", metavar="NAME", help="cases whose name contains this")
    parser.add_argument(
        "--reduced", action="store_true", help="for KernelBench: smaller sizes by one rule, so that checks take seconds"
    )
    parser.add_argument("--json", action="store_true", help="print what was read as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Import the source. Return 1 if one of several kernels or problems could not be imported."""
    if arguments.source == ["kernelbench"] and not Path("kernelbench").exists():
        raise UsageError("kernelbench needs a folder", hint="acceld import kernelbench DIR")
    if arguments.source[0] == "kernelbench" and len(arguments.source) == 2:
        return _kernelbench(Path(arguments.source[1]), Path(arguments.into), arguments)
    if len(arguments.source) != 1:
        raise UsageError("exactly one source is needed", hint="acceld import DIR, or acceld import kernelbench DIR")
    if arguments.reduced:
        raise UsageError(
            "--reduced works only with KernelBench's problems", hint="acceld import kernelbench DIR --reduced"
        )
    source = Path(arguments.source[0])
    if source.is_file():
        return _workloads(source, Path(arguments.into), arguments)
    if not source.is_dir():
        raise no_file(source)
    if (source / "summary.json").is_file():
        return _workloads(source / "summary.json", Path(arguments.into), arguments)
    home = find_home(arguments.home)
    if home.daemon() is not None:
        raise DaemonError(
            "nothing can be imported while a daemon writes the history",
            hint="acceld stop, then the same command again",
        )
    home.prepare()
    runs = asyncio.run(_record(source, home, arguments.only or "", arguments.chip))
    if arguments.json:
        print_json({"runs": runs})
    else:
        say(
            f"{figures.many(len(runs), 'run')}, {figures.many(sum(one['candidates'] for one in runs), 'kernel')}: see acceld runs"
        )
    return 0


def _kernelbench(source: Path, folder: Path, arguments: argparse.Namespace) -> int:
    """Write a workload for each problem, and return the exit code. A problem is a file with the class
    ``Model``, ``get_inputs`` and ``get_init_inputs``.
    """
    from acceld.cli.modules import write_module_workload
    from acceld.lowering.aten.requests import ModuleRequest, Refused, module_references

    if not source.is_dir():
        raise UsageError(f"there is no folder {source}", hint="give a copy of KernelBench, or a folder of its problems")
    files = [one for one in source.rglob("*.py") if "get_init_inputs" in one.read_text("utf-8", errors="replace")]
    files = sorted((one for one in files if (arguments.only or "") in one.stem), key=_by_number)
    if not files:
        raise UsageError(f"{source} has no problem of KernelBench", hint="a problem is a .py file with get_init_inputs")
    names = {one: f"{one.parent.name}_{one.stem}".rstrip("_") for one in files}
    there = [one for one in files if (folder / names[one]).exists()]
    if there:
        say(f"{figures.many(len(there), 'problem')} in {folder} already; remove a workload's folder to import it again")
    files = [one for one in files if one not in there]
    made: list[str] = []
    refused: list[dict[str, str]] = []
    # A problem runs as KernelBench runs it: in training mode, so that a batch norm takes the batch's statistics.
    requests = [ModuleRequest(f"{one}:Model", training=True, reduced=arguments.reduced) for one in files]
    began = before = time.monotonic()
    at = 0
    try:
        for at, (file, found) in enumerate(zip(files, module_references(requests), strict=True), 1):
            name = names[file]
            try:
                if isinstance(found, Refused):
                    raise UsageError(found.why)
                place = folder / name
                lowered = write_module_workload(found, place, name=name)
                made.append(str(place))
                what = f"a workload with kernels for {' and '.join(lowered.kernels)}"
                if not lowered.kernels:
                    what = "a workload without a kernel"
                    refused.append({"case": name, "why": next(iter(lowered.refused.values()))})
            except (UsageError, WorkloadError) as error:
                refused.append({"case": name, "why": error.message})
                what = f"no workload: {error.message}"
            now = time.monotonic()
            say(f"{at} of {len(files)}, {figures.elapsed(now - before)}: {name}: {what}")
            before = now
    except KeyboardInterrupt:
        say(
            f"{at} of {figures.many(len(files), 'problem')} tried, {figures.many(len(made), 'workload')} in {folder}; the same command continues"
        )
        raise
    if arguments.json:
        print_json({"workloads": made, "refused": refused})
    else:
        kernels = len(files) - len(refused)
        what = f"{figures.many(len(files), 'problem')}: {figures.many(len(made), 'workload')} in {folder}"
        say(f"{what}, {kernels} with a lowered kernel, in {figures.elapsed(before - began)}")
    return 1 if refused else 0


def _by_number(file: Path) -> tuple[Path, int, str]:
    """Return the key that sorts files by folder, then by the number with which a name begins: 2_B before 10_A."""
    return file.parent, int((re.findall(r"^\d+", file.stem) or ["0"])[0]), file.stem


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
    """Store the runs in ``source``, a checkpoint of AccelOpt or a trace set of flashinfer-bench, in the history. Return
    a record for each stored run.

    Runs whose name does not contain ``only`` are left out. Raise UsageError for a checkpoint without ``chip``, because
    a checkpoint does not say on which chip it was measured.
    """
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
