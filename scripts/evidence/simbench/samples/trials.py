"""Try one kernel of a checkout: trace, verify, execute and compare."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from acceld.nki.errors import KernelFailure
from acceld.nki.execute.interpreter import execute
from acceld.nki.frontend.tracing import TensorSpec, TraceOptions, trace
from acceld.nki.verify.verifier import verify
from scripts.evidence.simbench.samples.drawing import Array, Maker
from scripts.evidence.simbench.samples.references import wide

EXACT, NARROW, FP8_LOSS = 2e-6, 2e-2, 6e-2
"""Relative L2 allowed for float32 kernels, for those that round to 16 bits, and to 8."""


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel of nki-samples. ``make`` draws its arguments and computes the results it should give."""

    file: str
    entry: str
    make: Maker
    tolerance: float = EXACT
    grid: tuple[int, ...] = ()
    chip: str = "trn1"
    api: str = "nki_legacy"
    driver: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """Outcome of one case."""

    case: Case
    state: str
    detail: str
    error: float | None
    seconds: float


def results(folder: Path, cases: Sequence[Case]) -> list[Result]:
    """Trace, verify, execute and compare the cases of a checkout, and return what became of each."""
    return [_result(folder, case) for case in cases if (folder / case.file).is_file()]


def _result(folder: Path, case: Case) -> Result:
    arguments, expected = case.make(np.random.default_rng(7))
    started = time.process_time()

    def result(state: str, detail: str = "", error: float | None = None) -> Result:
        return Result(case, state, detail, error, time.process_time() - started)

    path = folder / case.file
    root = folder / "src" if case.file.startswith("src/") and "tutorials" not in case.file else path.parent
    source = case.driver or path.read_text(encoding="utf-8")
    specs = [TensorSpec(a.shape, a.dtype.name) if isinstance(a, np.ndarray) else a for a in arguments]
    try:
        program = trace(
            source,
            specs,  # type: ignore[arg-type]  # numbers, tuples and None pass as they are
            filename=str(path.with_name("driver.py") if case.driver else path),
            entry="kernel" if case.driver else case.entry,
            grid=case.grid,
            api=case.api,
            chip=case.chip,
            options=TraceOptions(source_root=root),
        )
    except KernelFailure as failure:
        return result("does not trace", f"line {failure.line}: {failure.message} [{failure.rule}]")
    findings = verify(program)
    if findings:
        first = findings[0]
        return result("refused", f"line {first.line}: {first.message} [{first.rule}]")
    try:
        results = execute(program, [a for a in arguments if isinstance(a, np.ndarray)])
    except KernelFailure as failure:
        return result("does not run", f"line {failure.line}: {failure.message} [{failure.rule}]")
    if case.entry.endswith(("rmsnorm_quant_kernel", "rmsnorm_quant")):
        results = unpacked_scales(results[0])
    error = max(distance(a, b) for a, b in zip(results, expected, strict=True))
    return result("right" if error <= case.tolerance else "differs", error=error)


def unpacked_scales(out: Array) -> list[Array]:
    """Return the quantized rows, and the float32 scale that is stored in the bytes after each row."""
    tail = np.ascontiguousarray(out[..., -4:]).view(np.uint8)
    return [out[..., :-4], np.ascontiguousarray(tail).view(np.float32)]


def distance(result: Array, expected: Array) -> float:
    """Return the relative L2 distance of two arrays, infinite if their sizes differ."""
    if result.size != expected.size:
        return float("inf")
    a, b = result.astype(np.float64).reshape(-1), wide(expected).reshape(-1)
    return float(np.linalg.norm(a - b)) / max(float(np.linalg.norm(b)), 1e-300)
