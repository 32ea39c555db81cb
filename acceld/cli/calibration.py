"""Correct the simulator by kernels that were measured on this machine: ``acceld calibrate --fit`` and ``--from
FILE.jsonl``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceld import config
from acceld.cli.kernels import parsed_kernel, workload_folders
from acceld.cli.output import print_json, print_table, say
from acceld.errors import AcceldError, UsageError
from acceld.given_arguments import Value, bare_arguments
from acceld.home import Home, find_home
from acceld.model import Kernel
from acceld.nki.timing import calibration
from acceld.nki.timing.calibration import Calibration
from acceld.nki.timing.calibration_fit import Sample, fit
from acceld.workloads import workload

MEASURED = """
SELECT s.sha256 AS source, max(t.text) AS text, s.api AS api, s.entry AS entry, s.grid AS grid, s.lnc AS lnc,
       f.chip AS chip, f.sdk AS sdk, e.workload AS workload, f.latency_us AS latency_us, max(e.id) AS evaluation
FROM evaluations e JOIN profiles f ON f.evaluation = e.id JOIN sources s ON s.sha256 = e.source_sha256
     JOIN texts t ON t.sha256 = s.text_sha256
WHERE f.source = 'measured' AND e.status = 'passed' AND s.closure IN ('', '{}') AND f.api IN ('nki', 'nki_legacy')
GROUP BY s.sha256, e.workload, f.chip, f.sdk
"""
"""SQL: the newest measurement of each kernel in the history, if the kernel consists of one file."""
LIMIT = 100_000
TIME_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """A kernel with its arguments, and the latency in microseconds that was measured for it on a chip."""

    name: str
    kernel: Kernel
    arguments: tuple[Value, ...]
    chain: str
    """Name of a group of kernels whose predictions have similar errors: the workload, or the arguments' shapes."""
    chip: str
    latency_us: float
    sdk: str = ""


def learn(arguments: argparse.Namespace) -> int:
    """Fit and store a calibration for each chip and API; or forget the stored calibrations, if the options say
    so. Return the exit code.
    """
    home = find_home(arguments.home)
    if home.daemon() is not None:
        raise UsageError("a daemon is running, and would keep its old calibration", hint="stop it first: acceld stop")
    state = home.prepare()
    if arguments.forget:
        calibration.keep(state, ())
        say("the stored calibrations are removed: the simulator uses its published performance model again")
        return 0
    settings = config.load().config
    found = list(from_file(arguments.file, settings) if arguments.file else from_history(home, settings))
    groups: dict[tuple[str, str, str], list[Measurement]] = defaultdict(list)
    for one in found:
        if arguments.chip in (None, one.chip):
            groups[one.chip, one.kernel.api, one.sdk].append(one)
    if not groups:
        raise UsageError(
            "there are no measured kernels to learn from",
            hint="measure some: acceld check r12 --on device, or --from FILE.jsonl",
        )
    fitted: dict[tuple[str, str], Calibration] = {}
    for (chip, api, sdk), group in sorted(groups.items()):
        samples = asyncio.run(_samples(group, settings, state))
        made = fit(samples, sdk=sdk)
        if (chip, api) not in fitted or made.kernels > fitted[chip, api].kernels:
            fitted[chip, api] = made
    others = [one for one in calibration.read(state) if (one.chip, one.api) not in fitted]
    path = calibration.keep(state, [*others, *fitted.values()])
    if arguments.json:
        print_json({"calibrations": [one.plain() for one in fitted.values()], "written": str(path)})
        return 0
    _show(list(fitted.values()))
    say(f"written to {path}; a latency names its calibration, and latencies of two calibrations are not compared")
    return 0


def _show(found: Sequence[Calibration]) -> None:
    rows = [
        (
            one.chip,
            one.api,
            one.sdk or "—",
            str(one.kernels),
            *(f"{one.factors[name]:.3f}" for name in calibration.FACTORS),
            *(f"{one.constants[name]:+.2f} µs" for name in calibration.CONSTANTS),
            f"{one.error_before_percent:.1f} %",
            f"{one.error_after_percent:.1f} %",
        )
        for one in found
    ]
    columns = ("chip", "api", "sdk", "kernels", *calibration.FACTORS, *calibration.CONSTANTS, "error before", "after")
    print_table(rows, columns, right=frozenset(range(3, len(columns))))


async def _samples(found: Sequence[Measurement], settings: config.Config, state: Path) -> list[Sample]:
    """Trace each measured kernel in the sandbox, and return the samples to which the calibration is fitted. A kernel
    that can not be traced is left out, and a message names the kernel.
    """
    from acceld.evaluate.simulated.programs import traced_program

    samples = []
    for one in found:
        try:
            program = await traced_program(one.kernel, one.arguments, one.chip, settings.evaluate, state)
        except AcceldError as error:
            say(f"left out: {one.name}: {error.message}")
            continue
        samples.append(Sample(program, one.latency_us, one.chain))
    return samples


def from_file(path: Path, settings: config.Config) -> Iterator[Measurement]:
    """Yield the measured kernels of a file of JSON lines.

    Each line is an object with ``kernel`` (a path from the file's folder), ``latency_us``, ``chip`` and
    ``api``. It names a ``workload``, or has ``args`` and ``scalars`` as ``acceld profile`` takes them. It may
    have ``entry`` and ``sdk``. Raise UsageError, with the line's number, for any other line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageError(
            f"{path} can not be read: {error.strerror}", hint="--from takes a file of JSON lines (docs/simulator.md)"
        ) from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            given = json.loads(line)
            yield _measurement(given, path.parent, settings)
        except (ValueError, KeyError, TypeError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            reason = f"this line is not JSON: {reason}" if isinstance(error, json.JSONDecodeError) else reason
            raise UsageError(f"{path}:{number}: {reason}", hint="docs/simulator.md lists the keys of a line") from error


def _measurement(given: Mapping[str, Any], folder: Path, settings: config.Config) -> Measurement:
    latency_us = float(given["latency_us"])
    if not 0 < latency_us < float("inf"):
        raise ValueError(f"latency_us = {latency_us} is not a number of microseconds above 0")
    kernel = parsed_kernel(folder / given["kernel"], api=given["api"], entry=given.get("entry", ""))
    if "workload" in given:
        chain = given["workload"]
        arguments = workload(chain, workload_folders(settings)).kernel_arguments()
    else:
        given_arguments = given["args"], given.get("scalars", [])
        chain = str(given_arguments)
        arguments = bare_arguments(kernel, *given_arguments)
    return Measurement(given["kernel"], kernel, arguments, chain, given["chip"], latency_us, given.get("sdk", ""))


def from_history(home: Home, settings: config.Config) -> Iterator[Measurement]:
    """Yield the measured kernels of this machine's history whose workloads still exist."""
    from acceld.store.connection import connect_reader
    from acceld.store.reads.history import query

    if not home.database.is_file():
        return
    connection = connect_reader(home.database)
    try:
        table = query(connection, MEASURED, limit=LIMIT, time_limit_s=TIME_LIMIT_S)
    finally:
        connection.close()
    for values in table.rows:
        row = dict(zip(table.columns, values, strict=True))
        try:
            arguments = workload(row["workload"], workload_folders(settings)).kernel_arguments()
        except UsageError as error:
            say(f"left out: {row['source'][:12]}: {error.message}")
            continue
        grid = tuple(json.loads(row["grid"]))
        kernel = Kernel(row["text"], row["api"], row["entry"], grid=grid, lnc=row["lnc"])
        chain = row["workload"]
        yield Measurement(row["source"][:12], kernel, arguments, chain, row["chip"], row["latency_us"], row["sdk"])
