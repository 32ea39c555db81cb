"""``acceld export``: write runs as a report, as data sets for training, or in the formats of other projects."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from acceld.cli.connect import history_file, run_numbers
from acceld.cli.output import print_json, say
from acceld.errors import UsageError
from acceld.workloads.discovery import workload_folders

REPORTS = ("html", "md", "png", "json")
FORMATS = ("pairs", "roles", "numpy-nki", "trl-sft", "trl-dpo", "verl", "jsonl", "flashinfer", "nkibench")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "runs", nargs="*", metavar="r12", help="the runs, by id or name; default, for data sets: every run that ended"
    )
    parser.add_argument(
        "--format",
        choices=(*REPORTS, *FORMATS),
        default="html",
        help="a report: html (default), md for a pull request, png, or json; the others are data sets, which "
        "docs/history.md describes",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="PATH",
        help="html: the file (default: report-r12.html); png and data sets: a new folder",
    )
    report = parser.add_argument_group("reports")
    report.add_argument("--redact", action="store_true", help="leave out models' texts, and messages")
    rows = parser.add_argument_group("data sets")
    rows.add_argument("--workload", help="runs of this workload only")
    rows.add_argument("--parquet", action="store_true", help="rows as Parquet instead of JSON lines (needs pyarrow)")
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Write the report, or the folder of files, and return the exit code."""
    report = arguments.format in REPORTS
    for name in ("workload", "parquet") if report else ("redact",):
        if getattr(arguments, name):
            kind = "a report" if report else "a data set"
            raise UsageError(
                f"--{name} works only for {'data sets' if report else 'reports'}, and {arguments.format} is {kind}",
                hint="acceld export --help lists the formats of reports and of data sets",
            )
    if report:
        from acceld.cli import report_files

        return report_files.run(arguments)
    if not arguments.output:
        raise UsageError(
            f"the format {arguments.format} is written to a new folder, and no folder is named",
            hint=f"acceld export --format {arguments.format} -o DIR",
        )
    from acceld.report.datasets import ROWS, distinct, split
    from acceld.report.exchange import card, nkibench, solutions, traces
    from acceld.report.row_files import write_lines, write_parquet
    from acceld.report.trace_set import trace_set

    folder = Path(arguments.output)
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty", hint="give a new folder: -o DIR")
    materials = _materials(arguments)
    if not materials:
        raise UsageError("there is no run to export", hint="acceld runs lists the runs")
    folder.mkdir(parents=True, exist_ok=True)
    counts: dict[str, int]
    if arguments.format == "nkibench":
        summary, files = nkibench(materials)
        for name, text in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        (folder / "summary.json").write_text(json.dumps(summary, indent=4) + "\n", encoding="utf-8")
        counts = {"cases": len(summary)}
    elif arguments.format == "flashinfer":
        counts = {
            "solutions": write_lines(folder / "solutions.jsonl", (row for one in materials for row in solutions(one))),
            "traces": write_lines(folder / "traces.jsonl", (row for one in materials for row in traces(one))),
        }
        for name, data in trace_set(materials, _known_workloads(materials)).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
    else:
        rows = ROWS[arguments.format]
        counts = {}
        for part in ("train", "test"):
            chosen = [one for one in materials if split(one.run.spec.workload) == part]
            made = list(distinct(row for one in chosen for row in rows(one)))
            counts[part] = len(made)
            if made and arguments.parquet:
                write_parquet(folder / f"{part}.parquet", made)
            elif made:
                write_lines(folder / f"{part}.jsonl", made)
        (folder / "README.md").write_text(
            card(arguments.format, counts, materials, parquet=arguments.parquet), encoding="utf-8"
        )
    if arguments.json:
        print_json({"format": arguments.format, "folder": str(folder), "runs": len(materials), "counts": counts})
    else:
        say(f"wrote {folder}: " + ", ".join(f"{number} {name}" for name, number in counts.items()))
    return 0


def _known_workloads(materials: Iterable[Any]) -> dict[str, Any]:
    """Return the workloads of the runs, as a dict by name. Workloads that no longer exist are left out."""
    from acceld.workloads import load_workload

    folders = workload_folders()
    found = {}
    for spec in {one.run.spec.workload: one.run.spec for one in materials}.values():
        folder = Path(spec.workload_folder) if spec.workload_folder else folders.get(spec.workload)
        if folder is not None and (folder / "workload.toml").is_file():
            found[spec.workload] = load_workload(folder)
    return found


def _materials(arguments: argparse.Namespace) -> list[Any]:
    from acceld.report.datasets import Material
    from acceld.store.reads.records import (
        answered_calls,
        load_attempts,
        load_candidates,
        load_insights,
        load_plans,
        load_run,
        load_runs,
    )

    folders = workload_folders()
    found = []
    with history_file(arguments.home) as connection:
        if arguments.runs:
            runs = [load_run(connection, number) for number in run_numbers(arguments.home, arguments.runs)]
        else:
            runs = [one for one in load_runs(connection, limit=100_000) if one.state.ended]
        for one in runs:
            if arguments.workload and one.spec.workload != arguments.workload:
                continue
            plans = {plan.id: plan for plan in load_plans(connection, one.id)}
            attempts = [a for n in range(1, one.iteration + 1) for a in load_attempts(connection, one.id, n)]
            candidates = load_candidates(connection, one.id)
            folder = Path(one.spec.workload_folder) if one.spec.workload_folder else folders.get(one.spec.workload)
            reference = folder / "reference.py" if folder else None
            text = reference.read_text(encoding="utf-8") if reference and reference.is_file() else ""
            insights = {
                (insight.slow_candidate, insight.fast_candidate): float(insight.wins - insight.losses)
                for insight in load_insights(connection, run=one.id, withdrawn=True)
            }
            calls = answered_calls(connection, one.id)
            found.append(Material(one, candidates, plans, attempts, text, calls, insights))
    return found
