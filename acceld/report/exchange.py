"""Write the history in the formats of flashinfer-bench and of NKIBench."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from acceld.model import FLASHINFER_STATUS, Candidate, Evaluation, RunSpec, Source, Status
from acceld.report.datasets import Material
from acceld.report.scrub import scrubbed
from acceld.targets import SIMULATOR, TARGETS
from acceld.workloads import Workload

FLASHINFER_LANGUAGE = {"triton": "triton"}
"""Language by API. flashinfer-bench has no name for NKI, so NKI is called python; the target hardware shows that it is
NKI.
"""

NKI_APIS = TARGETS[SIMULATOR].apis
"""APIs of kernels for Trainium. NKIBench's layout has no other kernels."""

SIMULATED = " (simulated)"
"""Suffix of the hardware's name for simulated results."""


def solutions(material: Material, public: Workload | None = None) -> Iterator[dict[str, Any]]:
    """Yield every candidate as a solution in flashinfer-bench's format. The solution belongs to the workload's
    definition, or to the public definition that ``public`` names.
    """
    spec = material.run.spec
    for candidate in material.candidates:
        yield {
            "name": solution_name(candidate),
            "definition": _definition(spec.workload, public),
            "author": f"acceld {spec.proposer}",
            "spec": {
                "language": FLASHINFER_LANGUAGE.get(spec.api, "python"),
                "target_hardware": [spec.chip],
                "entry_point": f"{candidate.kernel.filename}::{candidate.kernel.entry or 'kernel'}",
                "dependencies": [],
                "destination_passing_style": False,
            },
            "sources": [{"path": candidate.kernel.filename, "content": scrubbed(candidate.kernel.text)}],
            "description": f"{f'NKI ({spec.api})' if spec.api in NKI_APIS else spec.api}, candidate c{candidate.id} of run r{candidate.run}",
        }


def traces(material: Material, public: Workload | None = None) -> Iterator[dict[str, Any]]:
    """Yield every result as a trace in flashinfer-bench's format. By the rules of that format, the status decides
    whether a trace has correctness and a latency.
    """
    baseline = material.by_id().get(material.run.baseline or 0)
    base_us = baseline.evaluation.latency_us if baseline and baseline.evaluation else None
    at = datetime.fromtimestamp(material.run.ended_at or material.run.created_at, UTC).isoformat()
    spec = material.run.spec
    for candidate in material.candidates:
        if candidate.evaluation is None or candidate.evaluation.status in (Status.UNTESTED, Status.UNCHECKED):
            continue
        yield {
            "definition": _definition(spec.workload, public),
            "workload": {"uuid": f"{spec.workload}@{spec.chip}", "axes": {}, "inputs": {}},
            "solution": solution_name(candidate),
            "evaluation": _evaluation(candidate.evaluation, base_us, _hardware(candidate.evaluation, spec), at),
        }


def _definition(workload: str, public: Workload | None) -> str:
    named = public.definition if public is not None else None
    return named.name if named is not None else definition_name(workload)


def _hardware(evaluation: Evaluation, spec: RunSpec) -> str:
    """Return the name of the chip. If the result is simulated, the name has a mark that says so.

    The profile says whether the result is simulated; without a profile, the backend says so.
    """
    profile = evaluation.profile
    simulated = profile.source is Source.SIMULATED if profile is not None else spec.backend == SIMULATOR
    return spec.chip + (SIMULATED if simulated else "")


def _evaluation(evaluation: Evaluation, base_us: float | None, hardware: str, at: str) -> dict[str, Any]:
    status = FLASHINFER_STATUS[evaluation.status]
    profile, right = evaluation.profile, evaluation.correctness
    libraries = {"acceld": profile.method} if profile else {}
    made: dict[str, Any] = {
        "status": status,
        "environment": {"hardware": hardware, "libs": libraries},
        "timestamp": at,
        "log": scrubbed(evaluation.failure.message if evaluation.failure else ""),
    }
    if status in ("PASSED", "INCORRECT_NUMERICAL"):
        error = right.rel_l2 if right else math.nan
        made["correctness"] = {"max_relative_error": _number(error), "max_absolute_error": _number(error)}
    if status == "PASSED" and evaluation.latency_us:
        before = base_us or evaluation.latency_us
        made["performance"] = {
            "latency_ms": evaluation.latency_us / 1000,
            "reference_latency_ms": before / 1000,
            "speedup_factor": before / evaluation.latency_us,
        }
    return made


def _number(value: float) -> float | str:
    """Return a number as JSON takes it. NaN and infinity become a text, as flashinfer-bench writes them."""
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


def solution_name(candidate: Candidate) -> str:
    """Return the name of a candidate's solution, such as ``acceld_r12_c345``."""
    return f"acceld_r{candidate.run}_c{candidate.id}"


def definition_name(workload: str) -> str:
    """Return a workload's name without characters that a file name can not have."""
    return workload.replace("/", "_")


def nkibench(materials: Iterable[Material]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return (NKIBench's summary, files by path). The files are the reference and the best kernel of each workload;
    the summary names their paths.
    """
    summary: dict[str, Any] = {}
    files: dict[str, str] = {}
    chosen: dict[str, tuple[float, Material]] = {}
    for material in materials:
        best = material.by_id().get(material.run.best or 0)
        latency_us = best.evaluation.latency_us if best and best.evaluation else None
        known = chosen.get(material.run.spec.workload)
        if material.run.spec.api not in NKI_APIS:
            continue
        if latency_us and material.reference and (known is None or latency_us < known[0]):
            chosen[material.run.spec.workload] = (latency_us, material)
    for workload, (_, material) in sorted(chosen.items()):
        name = definition_name(workload)
        best = material.by_id()[material.run.best or 0]
        task, kernel = f"reference/{name}_numpy.py", f"kernels/{name}.py"
        files[task], files[kernel] = scrubbed(material.reference), scrubbed(best.kernel.text)
        implementation = {"task": f"./{task}", "kernel": f"./{kernel}"}
        summary[name] = {"seed": None, "cases": {"0": {"values": {}, "impls": [implementation]}}}
    return summary, files


TASKS = {"trl-dpo": "reinforcement-learning", "verl": "reinforcement-learning"}
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def card(name: str, counts: dict[str, int], materials: Sequence[Material], *, parquet: bool = False) -> str:
    """Return the README of an exported data set. It says what the data set contains, how the data set was made, and
    what its limits are.
    """
    workloads = sorted({material.run.spec.workload for material in materials})
    profiles = (one.evaluation.profile for material in materials for one in material.candidates if one.evaluation)
    simulated = any(profile is not None and profile.source is Source.SIMULATED for profile in profiles)
    lines = [
        "---",
        "license: other",
        f"task_categories: [{TASKS.get(name, 'text-generation')}]",
        f"size_categories: ['{next((size for most, size in SIZES if sum(counts.values()) < most), 'n>1M')}']",
        "tags: [code, kernels]",
        "configs:",
        "- config_name: default",
        "  data_files:",
        *(
            f"  - split: {part}\n    path: {part}.{'parquet' if parquet else 'jsonl'}"
            for part in counts
            if counts[part]
        ),
        "---",
        "",
        f"# Kernel rewrites ({name})",
        "",
        f"{sum(counts.values())} rows, runs of acceld: {len(materials)}, workloads: {len(workloads)}; "
        + ", ".join(f"{number} {part}" for part, number in counts.items())
        + ".",
        "",
        "- Split by workload: no kernel of a test workload is in the training split.",
        "- Candidates whose result says nothing about the kernel (unsupported, suspect, untested) are left out of rewards.",
        "- Keys, tokens and home folders were removed. Texts that models wrote fall under their providers' terms.",
    ]
    if simulated:
        lines.append("- Latencies marked `simulated` come from acceld's model of the chip, not from a chip.")
    return "\n".join([*lines, "", "Workloads: " + ", ".join(workloads), ""])
