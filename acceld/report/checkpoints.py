"""Read AccelOpt's checkpoints: a folder for each case, which has a folder with JSON files for each iteration.

``log.txt`` of a case lists its iterations in order. In an iteration, ``planner_results.json`` has the plans of each
parent, ``executor_results.json`` the results of the plans (latencies in milliseconds, from neuron-profile), and
``rewrites/aggregated_rewrites_list.json`` the memory. A parent is identified by its text alone. Checkpoints do not say
on which chip latencies were measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceld.errors import UsageError
from acceld.model import Check, Correctness, Evaluation, Failure, Gate, InsightKind, Kernel, Profile, Source, Status

METHOD = "AccelOpt checkpoint"
API = "nki_legacy"
RESULTS = "executor_results.json"
NO_CODE = ("No implementation found", "No plan found")
ERRORS: Mapping[str, Status] = {
    "compilation_error": Status.COMPILE_ERROR,
    "run_error": Status.RUNTIME_ERROR,
    "benchmarking_error": Status.RUNTIME_ERROR,
    "correctness_error": Status.INCORRECT_NUMERICAL,
}
"""Status by the key in AccelOpt's metadata that has the error's message."""
US_PER_MS = 1000.0
HEADER = """import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import neuronxcc.nki.isa as nisa
from neuronxcc.nki import trace
from neuronxcc.nki.language import par_dim

"""
"""Imports that AccelOpt puts before each answer to run it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a model to a plan: a kernel with its result, or the note that the answer had no code."""

    parent: str
    """Text of the plan's parent kernel."""
    plan: int
    index: int
    text: str | None
    evaluation: Evaluation | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One entry of AccelOpt's memory."""

    title: str
    strategy: str
    slow: str
    fast: str
    speedup: float
    kind: InsightKind


@dataclass(frozen=True, slots=True)
class Iteration:
    """The plans, answers and memory of one iteration."""

    parents: Mapping[str, float]
    """Latency of each parent in microseconds, by the parent's text."""
    plans: Mapping[tuple[str, int], str]
    """Text of each plan, by the parent's text and the plan's number."""
    answers: Sequence[Answer]
    rewrites: Sequence[Rewrite]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One case: AccelOpt's search on one workload."""

    name: str
    baseline: Kernel
    baseline_us: float
    iterations: Sequence[Iteration]


def is_checkpoint(folder: Path) -> bool:
    """Return True if a folder is a checkpoint of one search of AccelOpt, or contains such folders."""
    return any(_cases(folder))


def checkpoints(folder: Path, chip: str) -> Iterator[Checkpoint]:
    """Yield the cases in a folder, or the folder itself if it is a case. Raise UsageError if a file does not have
    AccelOpt's format.
    """
    for case in _cases(folder):
        try:
            found = _checkpoint(case, chip)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(
                f"{case} is not a checkpoint of AccelOpt: {error!r}",
                hint="give the folder that AccelOpt wrote for one search, with log.txt and its iterations' folders",
            ) from error
        if found is not None:
            yield found


def _cases(folder: Path) -> Iterator[Path]:
    for case in (folder, *sorted(entry for entry in folder.iterdir() if entry.is_dir())):
        if (case / "log.txt").is_file() and any(case.glob(f"*/{RESULTS}")):
            yield case


def _checkpoint(case: Path, chip: str) -> Checkpoint | None:
    """Return AccelOpt's search in the folder ``case`` as a record; None if no iteration of it has results."""
    names = [line.strip() for line in (case / "log.txt").read_text("utf-8").splitlines() if line.strip()]
    folders = [case / name for name in dict.fromkeys(names) if (case / name / RESULTS).is_file()]
    iterations, first = [], None
    for folder in folders:
        services = json.loads((folder / RESULTS).read_text("utf-8"))["executor_results"]
        iteration, tried = _iteration(folder, services, chip)
        iterations.append(iteration)
        first = first or next(iter(tried), None)
    if first is None:
        return None
    name = str(first.get("case_name") or case.name).removesuffix("_ID0")
    latency_us = float(first["baseline_latency"]) * US_PER_MS
    return Checkpoint(name, kernel_of(str(first["baseline"])), latency_us, iterations)


def _iteration(
    folder: Path, services: Sequence[Mapping[str, Any]], chip: str
) -> tuple[Iteration, list[Mapping[str, Any]]]:
    """Return (the iteration; its records that have their parent's text, each with the name of the record's case added)."""
    written = folder / "planner_results.json"
    planned = {row["service_name"]: row["plans"] for row in _list(written)}
    plans: dict[tuple[str, int], str] = {}
    parents: dict[str, float] = {}
    answers: list[Answer] = []
    tried: list[Mapping[str, Any]] = []
    for service in services:
        records = {key: value for key, value in service.items() if key.startswith("plan_")}
        known = next((one for one in records.values() if one.get("baseline")), None)
        if known is None:
            continue
        parent = str(known["baseline"])
        parents[parent] = float(known["baseline_latency"]) * US_PER_MS
        for key, record in records.items():
            number, index = (int(word) for word in key.split("_")[1:3])
            texts = planned.get(service["service_name"]) or []
            plans[parent, number] = str(texts[number]) if number < len(texts) else ""
            if record.get("baseline"):
                tried.append({**record, "case_name": service.get("case_name")})
            answers.append(_answer(parent, number, index, record, chip))
    rewrites = [_rewrite(row) for row in _list(folder / "rewrites" / "aggregated_rewrites_list.json")]
    return Iteration(parents, plans, answers, [one for one in rewrites if one is not None]), tried


def _answer(parent: str, number: int, index: int, record: Mapping[str, Any], chip: str) -> Answer:
    body, error = record.get("body"), str(record.get("error") or "")
    if not body or error in NO_CODE:
        return Answer(parent, number, index, None, None, error or "no code")
    return Answer(parent, number, index, str(body), evaluation_of(kernel_of(str(body)), record, chip))


def evaluation_of(kernel: Kernel, record: Mapping[str, Any], chip: str) -> Evaluation:
    """Return the result that AccelOpt recorded for a kernel as an evaluation."""
    metadata = json.loads(record.get("kernel_metadata") or "{}")
    latency_ms, error = record.get("latency"), str(record.get("error") or "")
    if not error and latency_ms:
        return passed(kernel, float(latency_ms) * US_PER_MS, metadata, chip)
    key = next((key for key in ERRORS if metadata.get(key)), "run_error")
    status = Status.TIMEOUT if "Hard timeout" in error else ERRORS[key]
    return Evaluation(status, kernel.sha256, failure=Failure(key, error[:2000] or "no latency"), log=error)


def passed(kernel: Kernel, latency_us: float, metadata: Mapping[str, Any], chip: str) -> Evaluation:
    """Return the measured evaluation of a kernel that passed AccelOpt's gate. neuron-profile's counters keep their
    names.
    """
    worst = float(metadata.get("rel_diffs") or 0.0)
    correctness = Correctness(Gate.SEARCH, worst, worst, checks=(Check("AccelOpt's gate", True, worst),))
    counters = {
        name: float(value)
        for name, value in metadata.items()
        if name.endswith(("_bytes", "_flops")) and isinstance(value, int | float)
    }
    profile = Profile(Source.MEASURED, chip, API, latency_us, METHOD, counters=counters)
    return Evaluation(Status.PASSED, kernel.sha256, correctness=correctness, profile=profile)


def _rewrite(row: Mapping[str, Any]) -> Rewrite | None:
    if not row.get("summary"):
        return None
    kind = InsightKind.POSITIVE if float(row.get("speedup_original") or 1.0) >= 1 else InsightKind.NEGATIVE
    title = str(row.get("title") or "").strip("* ") or "untitled"
    return Rewrite(
        title, str(row["summary"]), str(row["slow_kernel"]), str(row["fast_kernel"]), float(row["speedup"]), kind
    )


def kernel_of(text: str) -> Kernel:
    """Return a text of a checkpoint as a kernel. If the text has no imports, the imports that AccelOpt adds are put
    before it.
    """
    whole = text if "import neuronxcc" in text or "from neuronxcc" in text else HEADER + text
    return Kernel(whole, API, filename="kernel.py")


def _list(path: Path) -> list[Mapping[str, Any]]:
    return json.loads(path.read_text("utf-8")) if path.is_file() else []
