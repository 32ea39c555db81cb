"""Read and trace the kernels of the tables: those of NKIBench, from a checkout, and acceld's own."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from acceld.nki.frontend.tracing import Argument, TensorSpec, trace
from acceld.nki.ir.program import Program
from acceld.workloads import Workload, find_workloads
from acceld.workloads.discovery import workload

ROOT = Path(__file__).resolve().parents[3]
MEASURED = Path(__file__).with_name("nkibench_trn1.csv")
BEST: Mapping[str, str] = {"mamba_optimized": "mamba", "rope_optimized": "rope_single_freq_apply"}
"""The best kernels that AccelOpt publishes, with the workload of each."""
NKIBENCH = tuple(
    "adamw add_rmsnorm_matmul bmm bmm_softmax gqa_full lora mamba matmul matmul_add_rmsnorm rmsnorm_matmul "
    "rope_single_freq_apply silu swiglu transpose_matmul".split()
)
CHIPS: Mapping[str, str] = {"nki_legacy": "trn1", "nki": "trn2"}
"""Chip on which kernels of an API are timed."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """Text of a kernel, and its workload."""

    name: str
    source: str
    filename: str
    workload: Workload
    api: str = "nki_legacy"
    chip: str = ""
    """Chip to trace for; empty stands for the API's chip in :data:`CHIPS`."""

    @property
    def target(self) -> str:
        """Return the chip that the kernel is traced for."""
        return self.chip or CHIPS[self.api]

    def program(self) -> Program:
        """Trace the kernel at its workload's shapes. Raise KernelFailure if that fails."""
        return trace(
            self.source, self.arguments, filename=self.filename, api=self.api, chip=self.target,
            entry=self.workload.entry, grid=self.workload.grid,
        )  # fmt: skip

    def with_source(self, source: str) -> Kernel:
        """Return the same kernel with another source text."""
        return replace(self, source=source)

    @property
    def arguments(self) -> list[Argument]:
        """Return the arguments of the kernel."""
        return [
            a.value if a.value is not None else TensorSpec(a.kernel_shape or a.shape, a.dtype)
            for a in self.workload.arguments
        ]


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel with its program and its measured figures."""

    name: str
    program: Program
    trace_s: float
    measured: Mapping[str, float]


def public(name: str, folder: Path) -> Kernel:
    """Return a baseline of NKIBench, or one of :data:`BEST`, from the AccelOpt checkout in ``folder``."""
    if name in BEST:
        path = folder / "samples" / "nki" / f"{name}.py"
    else:
        found = (folder / "NKIBench" / "kernels").glob(f"{name}_*.py")
        path = next(p for p in found if p.name[len(name) + 1].isupper())
    return Kernel(name, path.read_text(), path.name, workload(BEST.get(name, name)))


def own(name: str, api: str = "nki_legacy") -> Kernel:
    """Return acceld's baseline of a workload."""
    spec = workload(name)
    path = spec.baselines[api]
    return Kernel(name, path.read_text(), path.name, spec, api)


def own_kernels() -> Iterator[Kernel]:
    """Yield every NKI baseline and variant of acceld's workloads, those of NKIBench first."""
    names = [*NKIBENCH, *(name for name in find_workloads() if name not in NKIBENCH)]
    for spec in map(workload, names):
        for api in CHIPS:
            if api in spec.baselines:
                path = spec.baselines[api]
                yield Kernel(spec.name, path.read_text(), path.name, spec, api)
        for variant in spec.variants:
            if variant.api in CHIPS:
                yield Kernel(
                    f"{spec.name}:{variant.name}", variant.path.read_text(), variant.path.name, spec, variant.api
                )


def measured_figures(path: Path = MEASURED) -> dict[str, dict[str, float]]:
    """Return the figures that were measured of each kernel."""
    with path.open() as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return {row["kernel"]: {k: float(v) for k, v in row.items() if k != "kernel" and v} for row in rows}


def measured_case(name: str, folder: Path, measured: Mapping[str, Mapping[str, float]]) -> Case:
    """Trace a public kernel and return it with its measurements."""
    started = time.process_time()
    program = public(name, folder).program()
    return Case(name, program, time.process_time() - started, measured[name])
