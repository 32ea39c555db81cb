"""Read other projects' results: NKIBench's summary, flashinfer-bench's solutions and traces.

The results become finished runs that name their origin. Their latencies count as ``measured`` on the hardware that the
files name. The kernels are not evaluated here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceld.drafts import reference_facts, workload_toml
from acceld.errors import UsageError
from acceld.model import Check, Correctness, Evaluation, Failure, Gate, Kernel, Profile, Source, Status
from acceld.report.exchange import SIMULATED

STATUSES: Mapping[str, Status] = {
    "PASSED": Status.PASSED,
    "INCORRECT_SHAPE": Status.INCORRECT_SHAPE,
    "INCORRECT_DTYPE": Status.INCORRECT_DTYPE,
    "INCORRECT_NUMERICAL": Status.INCORRECT_NUMERICAL,
    "RUNTIME_ERROR": Status.RUNTIME_ERROR,
    "COMPILE_ERROR": Status.COMPILE_ERROR,
    "TIMEOUT": Status.TIMEOUT,
}
"""acceld's status for each status of flashinfer-bench."""
METHOD = "flashinfer-bench"


@dataclass(frozen=True, slots=True)
class Imported:
    """One operator definition of another project at one set of sizes, with the results of all kernels for it."""

    workload: str
    hardware: str
    results: tuple[tuple[Kernel, Evaluation], ...]

    @property
    def chip(self) -> str:
        """Return the name of the hardware in the files, without a mark of simulation."""
        return self.hardware.removesuffix(SIMULATED)

    @property
    def backend(self) -> str:
        """Return the backend of the results; ``simulator`` if they were not measured."""
        return "simulator" if self.hardware.endswith(SIMULATED) else "imported"


@dataclass(frozen=True, slots=True)
class ImportedKernel:
    """One kernel of NKIBench, and its reference."""

    name: str
    values: Mapping[str, int]
    reference: Path
    kernel: Path


def cases(summary: Path) -> Iterator[ImportedKernel]:
    """Yield the cases in NKIBench's summary.json. Paths in the file are relative to its folder.

    Raise UsageError for an invalid file.
    """
    found = _load(summary)
    if not isinstance(found, dict):
        raise UsageError(
            f"{summary} is not a summary of NKIBench",
            hint="a summary is a JSON file that maps operators to their cases",
        )
    for operator, entry in found.items():
        try:
            for number, case in entry["cases"].items():
                for place, one in enumerate(case["impls"]):
                    name = f"{operator}_{number}" + (f"_{place}" if len(case["impls"]) > 1 else "")
                    yield ImportedKernel(
                        name, case["values"], summary.parent / one["task"], summary.parent / one["kernel"]
                    )
        except KeyError as error:
            raise UsageError(f"{summary}: {operator} has no {error}", hint="each case has values and impls") from error
        except (TypeError, AttributeError) as error:
            raise UsageError(
                f"{summary}: {operator} is no operator of NKIBench's summary",
                hint="an operator is an object with cases, and each case has values and impls",
            ) from error


def write_workload(case: ImportedKernel, folder: Path) -> Path:
    """Write the workload folder of a case: workload.toml, reference.py and the kernel. Return the folder's path.

    Raise UsageError if the folder exists already, or a file of the case is missing.
    """
    place = folder / case.name
    if place.exists():
        raise UsageError(f"{place} exists already; nothing was written", hint="import into a new folder: --into DIR")
    for path in (case.reference, case.kernel):
        if not path.is_file():
            raise UsageError(
                f"there is no file {path}, which {case.name} names", hint="give a folder that has this file"
            )
    facts = reference_facts(case.reference)
    place.mkdir(parents=True)
    (place / "reference.py").write_text(case.reference.read_text("utf-8"), "utf-8")
    (place / "kernel_legacy.py").write_text(case.kernel.read_text("utf-8"), "utf-8")
    text = workload_toml(
        case.name,
        facts.arguments,
        facts.outputs,
        baselines={"nki_legacy": "kernel_legacy.py"},
        reference="reference.py",
    )
    (place / "workload.toml").write_text(text, "utf-8")
    return place


def flashinfer(folder: Path) -> list[Imported]:
    """Return the workloads, with the results of their solutions, in a flashinfer-bench trace set or an export of
    acceld.

    A definition with results for several sets of axes becomes several workloads, called ``definition@uuid``.
    """
    solutions: dict[str, Any] = {}
    for path in _files(folder, "solutions"):
        solutions.update({row["name"]: row for row in _rows(path) if "sources" in row})
    found: dict[tuple[str, str, str], list[tuple[Kernel, Evaluation]]] = {}
    for path in _files(folder, "traces"):
        for row in _rows(path):
            result, solution = row.get("evaluation"), solutions.get(row.get("solution") or "")
            if not result or not solution:
                continue
            uuid = str((row.get("workload") or {}).get("uuid") or "")
            key = (row["definition"], uuid, str(result["environment"]["hardware"]))
            kernel = _kernel(solution)
            found.setdefault(key, []).append((kernel, _evaluation(result, kernel, key[2])))
    if not found:
        raise UsageError(
            f"{folder} has no trace that can be used: a trace needs an evaluation, and its solution must be in the folder too",
            hint="the folder needs the files solutions.jsonl and traces.jsonl, or the folders solutions and traces",
        )
    sizes = Counter(name for name, _ in {(name, uuid) for name, uuid, _ in found})
    return [
        Imported(name if sizes[name] == 1 else f"{name}@{uuid[:8]}", hardware, tuple(results))
        for (name, uuid, hardware), results in sorted(found.items(), key=lambda entry: entry[0])
    ]


def _kernel(solution: Mapping[str, Any]) -> Kernel:
    file, _, entry = solution["spec"]["entry_point"].partition("::")
    texts = {source["path"]: source["content"] for source in solution["sources"]}
    text = texts.pop(file, "") or next(iter(texts.values()), "")
    return Kernel(text, str(solution["spec"]["language"]), entry, filename=Path(file).name, closure=texts)


def _evaluation(result: Mapping[str, Any], kernel: Kernel, hardware: str) -> Evaluation:
    status = STATUSES.get(result["status"], Status.RUNTIME_ERROR)
    error = _number((result.get("correctness") or {}).get("max_relative_error"))
    latency_ms = (result.get("performance") or {}).get("latency_ms")
    if status is Status.PASSED and latency_ms:
        check = Check("flashinfer-bench", True, error)
        source = Source.SIMULATED if hardware.endswith(SIMULATED) else Source.MEASURED
        profile = Profile(source, hardware.removesuffix(SIMULATED), kernel.api, latency_ms * 1000, METHOD)
        return Evaluation(
            status,
            kernel.sha256,
            correctness=Correctness(Gate.SEARCH, error, max(error, 0.0), checks=(check,)),
            profile=profile,
        )
    if status is Status.PASSED:
        status = Status.RUNTIME_ERROR
    log = str(result.get("log") or result["status"])
    return Evaluation(status, kernel.sha256, failure=Failure(result["status"].lower(), log[:2000]), log=log)


def _number(value: Any) -> float:
    return float(value) if value is not None else 0.0


def _files(folder: Path, name: str) -> Sequence[Path]:
    """Return the files with JSON or JSON lines in the folder ``folder/name``, then the files of that name beside the
    folder.
    """
    found = sorted((folder / name).rglob("*.json*")) if (folder / name).is_dir() else []
    return [*found, *(path for path in (folder / f"{name}.jsonl", folder / f"{name}.json") if path.is_file())]


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if path.suffix == ".json":
        found = _load(path)
        yield from found if isinstance(found, list) else [found]
        return
    for number, line in enumerate(path.read_text("utf-8").split("\n"), 1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                raise UsageError(f"{path}:{number}: {error}", hint="give a file that the other tool wrote") from error


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint="give a file that you may read") from error
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}", hint="give a file that the other tool wrote") from error
